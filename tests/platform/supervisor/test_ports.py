import os
import socket
from pathlib import Path

import pytest
from tursiops.progress import SetupError
from tursiops.supervisor import ports


def test_a_taken_port_names_its_process_and_the_flag():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(SetupError) as refused:
            ports.check_port("127.0.0.1", port)
    assert f"process {os.getpid()}" in str(refused.value)
    assert f"--port {port + 1}" in str(refused.value)


def test_a_free_port_is_fine():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ports.check_port("127.0.0.1", port)


def test_a_folder_too_deep_for_sockets_is_refused_with_the_limit():
    ports.check_socket_path(Path("/tmp/run/broker.sock"))
    with pytest.raises(SetupError, match="107 bytes"):
        ports.check_socket_path(Path("/tmp") / ("x" * 100) / "broker.sock")
