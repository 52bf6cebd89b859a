"""Choosers decide which message comes next: their contract, and those that come with streambench."""

from streambench.chooser.api import MessageChooser, MessageChooserFactory
from streambench.chooser.batching import BatchingChooser
from streambench.chooser.bootstrapping import BootstrappingChooser
from streambench.chooser.explanation import Candidate, Explanation
from streambench.chooser.round_robin import RoundRobinChooser
from streambench.chooser.tiered import TieredPriorityChooser
from streambench.model import PartitionMetadata

__all__ = [
    "BatchingChooser",
    "BootstrappingChooser",
    "Candidate",
    "Explanation",
    "MessageChooser",
    "MessageChooserFactory",
    "PartitionMetadata",
    "RoundRobinChooser",
    "TieredPriorityChooser",
]
