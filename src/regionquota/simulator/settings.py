"""What a deployment is set to: as shipped, unless the scenario says otherwise."""

from dataclasses import dataclass, replace

from regionquota.config import AgentConfig, CoordinatorConfig, EtcdConfig, PlannerConfig
from regionquota.core.rebalancing import Policy, with_pool
from regionquota.simulator.scenario import CoordinatorPart


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds of the scenario."""

    interval_s: float
    leader_ttl_s: float
    liveness_ttl_s: float
    report_interval_s: float
    settle_interval_s: float
    relist_interval_s: float
    timeout_s: float
    claim_share: float
    low_water: float
    urgent_pause_s: float
    urgent_lead_s: float
    policy: Policy
    learn: bool = True


def settings_of(part: CoordinatorPart) -> Settings:
    agent, coordinator, planner = AgentConfig(), CoordinatorConfig(), PlannerConfig()

    def chosen(said: float | None, shipped: float) -> float:
        return shipped if said is None else said

    shipped = Policy(
        smallest_move_share=planner.smallest_move_share,
        idle_move_share=planner.idle_move_share,
        growth_rounds=planner.growth_rounds,
        variance=planner.variance,
    )
    policy = replace(
        shipped,
        smallest_move_share=chosen(part.smallest_move_share, shipped.smallest_move_share),
        growth_rounds=chosen(part.growth_rounds, shipped.growth_rounds),
        variance=chosen(part.variance, shipped.variance),
    )
    policy = with_pool(
        policy,
        planner.pool_share if part.pool_share is None else part.pool_share,
        chosen(part.smallest_pool_share, planner.smallest_pool_share),
        chosen(part.largest_pool_share, planner.largest_pool_share),
    )
    return Settings(
        interval_s=chosen(part.interval_s, coordinator.interval_s),
        leader_ttl_s=coordinator.leader_ttl_s,
        liveness_ttl_s=agent.liveness_ttl_s,
        report_interval_s=chosen(part.report_interval_s, agent.report_interval_s),
        settle_interval_s=agent.settle_interval_s,
        relist_interval_s=agent.relist_interval_s,
        timeout_s=EtcdConfig(endpoints=("simulated:0",)).timeout_s,
        claim_share=chosen(part.claim_share, agent.claim_share),
        low_water=chosen(part.low_water, agent.low_water),
        urgent_pause_s=agent.urgent_pause_s,
        urgent_lead_s=agent.urgent_lead_s,
        policy=policy,
        learn=part.learn,
    )
