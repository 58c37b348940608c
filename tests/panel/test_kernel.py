"""The connection in a real kernel: opened, asked and told through Jupyter's own messages."""

from __future__ import annotations

import sys
import uuid

from jupyter_client.manager import KernelManager

from tests.panel.notebook import validator

HEAVY = "[name for name in ('torch', 'numpy', 'pitfall_lab.rules', 'pitfall_lab.check') if name in sys.modules]"


def test_a_page_opens_the_connection_and_nothing_is_imported_without_torch():
    manager = KernelManager(kernel_name="python3")
    manager.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        comm = uuid.uuid4().hex

        def say(kind, **content):
            client.shell_channel.send(client.session.msg(kind, {"comm_id": comm, **content}))

        def heard():
            while True:
                message = client.get_iopub_msg(timeout=120)
                if message["msg_type"] in ("comm_msg", "comm_close") and message["content"]["comm_id"] == comm:
                    validator("answer").validate(message["content"]["data"])
                    return message["content"]["data"]

        client.execute("%load_ext pitfall_lab", silent=True, store_history=False)
        say("comm_open", target_name="pitfall-lab.live", data={"version": 1, "language": "en"})
        assert heard()["warnings"] == []
        say("comm_msg", data={"version": 1, "ask": "watch", "visible": True, "stale": True})
        say("comm_msg", data={"version": 1, "ask": "rows"})
        assert heard()["rows"] == []
        say("comm_msg", data={"version": 1, "ask": "run", "code": "1"})
        assert heard()["kind"] == "refused"
        asked = client.execute("import sys", user_expressions={"heavy": HEAVY})
        say("comm_msg", data={"version": 1, "ask": "rows"})
        assert heard()["cell"]["count"] == 1
        reply = client.get_shell_msg(timeout=120)
        while reply["parent_header"].get("msg_id") != asked:
            reply = client.get_shell_msg(timeout=120)
        assert reply["content"]["user_expressions"]["heavy"]["data"]["text/plain"] == "[]"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
