"""What may differ between versions of Python, without pytest. Ends with the line `all is well`."""

import os
import pickle
import signal
import socket
import threading

import hearth

fs = hearth.FileSystem()
data = os.urandom(300_000)
fs.write_file("/smoke", data)
assert fs.read_file("/smoke") == data and fs.read_files(["/smoke"]) == [data]
with fs.open("/smoke") as file:
    assert file.read(10) == data[:10] and file.pread(100, 50) == data[100:150]
    view = file.view(in_place=True)
    into = bytearray(1000)
    assert file.pread_into(7, into) == 1000 and into == data[7:1007]
assert view[5] == data[5] and bytes(view[-9:]) == data[-9:] and view.readonly
with fs.open("/smoke", "w") as file:
    file.write("text\n")
with fs.open("/smoke", "r") as file:
    assert file.readlines() == ["text\n"]
assert pickle.loads(pickle.dumps(fs)).info("/smoke").size == 5
try:
    fs.info("/missing")
    raise SystemExit("found a missing file")
except FileNotFoundError as error:
    assert "/missing" in str(error)

# Ctrl-C, twice: the check works again after it was used. Programs in the background ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _ in range(2):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(5)
        deaf = hearth.FileSystem("127.0.0.1:%d" % silent.getsockname()[1])
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            deaf.exists("/")
            raise SystemExit("a server that is silent has answered")
        except KeyboardInterrupt:
            pass
fs.delete("/smoke")
print("all is well")
