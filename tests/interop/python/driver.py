"""Carries out file system operations with hdfs-native. Requests and answers are lines of JSON, as of Driver.java."""

import hashlib
import json
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from hdfs_native import Client, WriteOptions

PIECE = 1 << 20
MASK = (1 << 64) - 1


def content(seed, length):
    """The first bytes of the content of `seed`: the twin of Rust's hearth_testkit::Content."""
    words = []
    for index in range((length + 7) // 8):
        z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        words.append(z ^ (z >> 31))
    return struct.pack("<%dQ" % len(words), *words)[:length]


def status(s):
    return {
        "path": s.path,
        "length": s.length,
        "directory": s.isdir,
        "replication": s.replication,
        "blockSize": s.blocksize,
        "owner": s.owner,
        "group": s.group,
        "permission": "%o" % s.permission,
    }


class Driver:
    def __init__(self, conf):
        self.client = Client(config_dir=conf)

    def options(self, r):
        options = WriteOptions()
        options.overwrite = r.get("overwrite", True)
        if "replication" in r:
            options.replication = r["replication"]
        if "blockSize" in r:
            options.block_size = r["blockSize"]
        return options

    def send_file(self, local, writer):
        with open(local, "rb") as source, writer as out:
            while piece := source.read(PIECE):
                out.write(piece)

    # path, local; replication, blockSize, overwrite
    def put(self, r):
        for attempt in range(5):
            try:
                return self.send_file(r["local"], self.client.create(r["path"], self.options(r)))
            except Exception as error:
                # Java's client retries, hdfs-native does not: a datanode's report may arrive a moment after the
                # request.
                if "NotReplicatedYet" not in str(error) or attempt == 4 or not r.get("overwrite", True):
                    raise
                time.sleep(1)

    # path, local
    def append(self, r):
        self.send_file(r["local"], self.client.append(r["path"]))

    def get(self, r):
        with self.client.read(r["path"]) as source, open(r["local"], "wb") as out:
            for piece in source.read_range_stream(0, len(source)):
                out.write(piece)

    # path; position, length
    def read(self, r):
        digest = hashlib.sha256()
        total = 0
        with self.client.read(r["path"]) as source:
            position = r.get("position", 0)
            for piece in source.read_range_stream(position, r.get("length", len(source) - position)):
                digest.update(piece)
                total += len(piece)
        return {"length": total, "sha256": digest.hexdigest()}

    def pread(self, r):
        with self.client.read(r["path"]) as source:
            piece = source.read_range(r["position"], r["length"])
        return {"length": len(piece), "sha256": hashlib.sha256(piece).hexdigest()}

    def cat(self, r):
        started = time.monotonic()
        total = 0
        with self.client.read(r["path"]) as source:
            for piece in source.read_range_stream(0, len(source)):
                total += len(piece)
        return {"length": total, "seconds": time.monotonic() - started}

    def list(self, r):
        return [status(s) for s in self.client.list_status(r["path"], r.get("recursive", False))]

    def stat(self, r):
        return status(self.client.get_file_info(r["path"]))

    def rename(self, r):
        self.client.rename(r["from"], r["to"], r.get("overwrite", False))

    def delete(self, r):
        return self.client.delete(r["path"], r.get("recursive", False))

    def mkdirs(self, r):
        self.client.mkdirs(r["path"], int(r.get("permission", "755"), 8), True)

    def setrep(self, r):
        return self.client.set_replication(r["path"], r["replication"])

    def chmod(self, r):
        self.client.set_permission(r["path"], int(r["permission"], 8))

    def times(self, r):
        self.client.set_times(r["path"], r["modified"], r["accessed"])

    def summary(self, r):
        s = self.client.get_content_summary(r["path"])
        return {"length": s.length, "files": s.file_count, "directories": s.directory_count, "space": s.space_consumed}

    # dir, count, length, seed, threads: file i holds the content of seed + i
    def storeMany(self, r):
        def store(i):
            with self.client.create("%s/file-%d" % (r["dir"], i), WriteOptions(overwrite=True)) as out:
                out.write(content(r["seed"] + i, r["length"]))

        return self.many(r, store)

    def readMany(self, r):
        def check(i):
            path = "%s/file-%d" % (r["dir"], i)
            with self.client.read(path) as source:
                if source.read() != content(r["seed"] + i, r["length"]):
                    raise ValueError(path + " differs")

        return self.many(r, check)

    def many(self, r, action):
        started = time.monotonic()
        with ThreadPoolExecutor(r.get("threads", 1)) as pool:
            for _ in pool.map(action, range(r["count"])):
                pass
        return {"seconds": time.monotonic() - started}


def main():
    answers = sys.stdout
    sys.stdout = sys.stderr
    driver = Driver(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": getattr(driver, request["op"])(request)}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error).split("\n")[0]}
        print(json.dumps(answer), file=answers, flush=True)


main()
