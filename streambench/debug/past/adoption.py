"""The history of a container whose branch is adopted: the branch takes the place of what it replaced."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise

from streambench.container.trace import Sent
from streambench.debug.history.block import Block, BlockTail
from streambench.debug.history.history import History
from streambench.debug.past.replica import Cut, Done, Replica


def take_over(
    history: History, replica: Replica, made: Mapping[int, Sequence[Sent]], pending: list[Sent]
) -> None:
    """Have a history hold a branch, run to the newest position, instead of what was recorded after its begin.
    What was before that stays. ``made``: what became of outputs, with their dead letters, by the identity of
    these. ``pending``: the outputs that wait for the commit."""
    cuts, writes = replica.cuts, replica.writes
    sent = [
        () if each.is_letter else made.get(id(each), (each,)) for _, each in replica.outputs
    ]
    counts = [*accumulate(map(len, sent), initial=0)]
    begin = cuts[0].block.start
    tails = history.drop_after(begin)
    base = history.blocks[-1]
    # Of an init, say: the block before it ends with its writes.
    base.writes.extend(writes[cuts[0].before.written : cuts[0].after.written])
    base.measure()
    end = Done(len(replica.outputs), len(writes))
    last = Cut(base, end, end, len(replica.repeated))
    former = base
    for cut, following in pairwise([*cuts, last]):
        block = cut.block
        block.first_output = former.first_output + len(former.outputs)
        block.first_write = former.first_write + len(former.writes)
        block.outputs += chain.from_iterable(sent[cut.after.sent : following.after.sent])
        block.writes.extend(writes[cut.after.written : following.after.written])
        block.events += [
            event._replace(
                sent=block.first_output + counts[event.sent] - counts[cut.after.sent],
                written=block.first_write + event.written - cut.after.written,
            )
            for event in replica.repeated[cut.callbacks : following.callbacks]
        ]
        _take_messages(block, tails, begin, None if following is last else following.block.start)
        block.measure()
        former = block
    history.put_in_place([each.block for each in cuts], pending)


def _take_messages(block: Block, tails: Sequence[BlockTail], begin: int, end: int | None) -> None:
    """Give a block the recorded messages from its start on, up to ``end``. ``begin``: the position before the
    first one in ``tails``."""
    order = array("L", chain.from_iterable(each.order for each in tails))
    block.order.extend(order[block.start - begin : None if end is None else end - begin])
    end = begin + len(order) if end is None else end
    block.batches.extend(each for tail in tails for each in tail.batches if block.start < each[0] <= end)
    block.ticks += [each for tail in tails for each in tail.ticks if block.start < each[0] <= end]
