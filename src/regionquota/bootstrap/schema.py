"""Migrations, for those who may not name an adapter."""

from regionquota.adapters.postgres.migrate import Migration, Phase, migrate

__all__ = ["Migration", "Phase", "migrate"]
