"""What the documentation says of the network is so."""

from __future__ import annotations

import re
import threading
from typing import Any

from streambench.system.net import TcpSystemFactory, UdpSystemFactory
from tests.conftest import CHECKOUT
from tests.ports import free_ports
from tests.system.net.peers import config, receiving

PAGE = (CHECKOUT / "docs" / "network.md").read_text()


def test_the_sender_of_the_page_sends_until_everything_is_safe() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("time.sleep(0.5)", "time.sleep(0.01)"), names)
    port = free_ports(1)
    settings, lines = config(streams__lines__listen=str(port)), [b"%d" % number for number in range(1000)]
    sending = threading.Thread(target=names["send_until_safe"], args=("127.0.0.1", port, lines))
    sending.start()
    with receiving(TcpSystemFactory(), settings) as receiver:
        assert receiver.receive(1000) == lines
        receiver.acknowledge(399)
    with receiving(TcpSystemFactory(), settings) as receiver, receiver.at_work() as found:
        sending.join()
        assert found == lines[400:]


def test_every_setting_on_the_page_is_one_and_has_the_default_that_it_says() -> None:
    settings = {
        key.pattern.removeprefix("systems.<s>."): key
        for factory in (UdpSystemFactory, TcpSystemFactory)
        for key in factory.settings
        if ".<t>." not in key.pattern
    }
    named = {name for name in re.findall(r"`([a-z.]+\.(?:ms|bytes|connections|certificate|key|ca))`", PAGE)}
    assert named <= set(settings)
    assert named >= {
        name for name in settings if name.endswith((".ms", ".connections", ".certificate", ".key", ".ca"))
    }
