FROM python:3.12-slim AS build
WORKDIR /build
RUN python -m venv /opt/regionquota
COPY pyproject.toml README.md constraints.txt ./
COPY src ./src
RUN /opt/regionquota/bin/pip install --no-cache-dir -c constraints.txt .

FROM python:3.12-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin regionquota
COPY --from=build /opt/regionquota /opt/regionquota
# Inside a container the loopback address reaches nobody.
ENV PATH=/opt/regionquota/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    REGIONQUOTA_REGION__HOST=0.0.0.0 \
    REGIONQUOTA_COORDINATOR__HOST=0.0.0.0
# A number, so that Kubernetes can tell it is not root.
USER 10001
EXPOSE 8080 8090
# No shell in between: SIGTERM reaches the daemon, which finishes the calls in progress.
ENTRYPOINT ["regionquota"]
