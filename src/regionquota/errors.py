"""What can go wrong, as one tree.

RegionQuotaError
|-- ConfigError            a configuration file or variable is wrong; the message names the key and the remedy
|-- ProtocolError          a transition that the allocation or reservation rules forbid (a bug, never bad input)
|-- InvalidRequest         bad input; `field` names what, the message says what it takes
|-- StaleVersion           a limit older than the one in force, or the same version with other content
`-- Unavailable            something outside does not answer; the caller may try again
    |-- StoreUnavailable   the region's Postgres
    |   |-- OutcomeUnknown   the connection broke at COMMIT: re-read by id, never repeat blindly
    |   `-- NotTrusted       the server may lack commits: nothing is admitted until it was compared with etcd
    |-- ExecutorUnavailable  who knows what became of started work
    |-- SourceUnavailable  a source of truth, or what it says cannot be used
    `-- EtcdUnavailable    etcd
        |-- HistoryEnded        its history was halted, or recovered under a new name: nothing of the old one is written
        |-- WentBackwards       it was restored from an older snapshot, or another cluster answers
        `-- UnreadableDocument  one document that this release cannot read, or that does not add up
"""


class RegionQuotaError(Exception):
    """Root of every error this project raises on purpose."""


class ConfigError(RegionQuotaError):
    """A configuration file or variable is wrong."""


class ProtocolError(RegionQuotaError):
    """A transition that the rules forbid. Nothing was changed."""


class InvalidRequest(RegionQuotaError):  # noqa: N818 - reads as a sentence where it is raised
    """Bad input, refused at the edge."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class StaleVersion(RegionQuotaError):  # noqa: N818
    """A newer version of the limit is in force, or this version with other content, or a quota of another kind."""

    def __init__(self, message: str, field: str = "version") -> None:
        super().__init__(message)
        self.field = field


class Unavailable(RegionQuotaError):  # noqa: N818
    """Something outside does not answer; nothing is known to be wrong with the request."""


class StoreUnavailable(Unavailable):
    """The region's Postgres does not answer in time."""


class OutcomeUnknown(StoreUnavailable):
    """The connection broke while COMMIT was under way: it may or may not have happened."""


class NotTrusted(StoreUnavailable):
    """The server was not compared with etcd since it began. Nothing is admitted in it; what is held is settled."""


class SourceUnavailable(Unavailable):
    """A source of truth does not answer in time, or its answer has not the form that it must have."""


class EtcdUnavailable(Unavailable):
    """No answer from etcd in time. A write may or may not have happened."""


class HistoryEnded(EtcdUnavailable):
    """Certainly nothing was written. `core.history` says what a history is, and how another begins."""


class WentBackwards(EtcdUnavailable):
    """etcd remembers less than was seen of it. It is not asked again until it was recovered."""


class UnreadableDocument(EtcdUnavailable):
    """What stands under a key is nothing that this release can read, or does not add up. The rest of etcd is well."""


class ExecutorUnavailable(Unavailable):
    """The executor that knows what became of started work gives no answer, or none that can be read."""
