from regionquota.simulator.report import Report


def page(found: Report) -> str:
    return found.scenario.name
