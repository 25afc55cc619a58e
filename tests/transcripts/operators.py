"""What an operator types, and what becomes of it."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from tests.transcripts.gates import Gate, Work

from regionquota.adapters.memory.histories import BoundAllocations
from regionquota.core.allocation import LimitSource, VersionedLimit
from regionquota.core.history import Bond
from regionquota.core.quota import Region
from regionquota.errors import InvalidRequest
from regionquota.evictions import evict_region, readmit_region
from regionquota.limits import put_limit
from regionquota.recovery import await_statements, begin_recovery, end_recovery, rebuild_documents

if TYPE_CHECKING:
    from tests.transcripts.stage import Stage

_WHO: Final = "operator"


class Operator:
    def __init__(self, stage: "Stage") -> None:
        self._stage = stage
        self._etcd: Any = self._reach(stage.etcd)
        self._histories: Any = self._reach(stage.histories)
        self._version = 0

    def set_limit(self, limit: int) -> None:
        self._type(f"quota set {self._stage.key.tenant} {self._stage.key.resource} {limit}")
        self._version += 1
        word = VersionedLimit(limit, self._version)
        self._carry_out(put_limit(self._etcd, self._stage.key, self._stage.kind, LimitSource.PLAN, word))

    def evict(self, region: Region, attestation: str) -> None:
        self._type(f'region evict {region} --attest "{attestation}"')
        self._carry_out(evict_region(self._etcd, self._etcd, self._histories, region, attestation, self._stage.clock))

    def readmit(self, region: Region) -> None:
        self._type(f"region readmit {region}")
        work = readmit_region(
            self._etcd,
            self._etcd,
            self._histories,
            region,
            self._stage.clock,
            database_lost=False,
            nothing_used=False,
        )
        self._carry_out(work)

    async def recover(self) -> bool:
        """And each server as it hears of it. False: a region says nothing."""
        stage = self._stage
        self._type("region recover")
        history = self._carry_out(begin_recovery(self._histories, _WHO, stage.time))
        for region, agent in list(stage.agents.items()):
            agent.look_at_history()
            if agent.ended:
                stage.start(region)
        try:
            stated = await await_statements(stage.histories, stage.etcd, history, [], patience_s=0.0)
        except InvalidRequest as error:
            stage.tell(_WHO, f"is refused: {error}")
            return False
        recovering: Any = self._reach(BoundAllocations(stage.etcd, Bond(), history))
        _, _, wanted = self._carry_out(rebuild_documents(recovering, stage.etcd, stated, stage.clock))
        stage.is_credible = True
        self._carry_out(end_recovery(self._histories, self._etcd, history, wanted, stated))
        for agent in stage.agents.values():
            agent.look_at_history()
            agent.relist()
        return True

    def _type(self, command: str) -> None:
        self._stage.tell(_WHO, f"types: regionquota {command}")

    def _reach(self, port: object) -> Gate:
        return Gate(_WHO, port, self._stage)

    def _carry_out(self, work: Coroutine[Any, Any, Any]) -> Any:
        return Work(_WHO, work, self._stage.tell).finish().result
