r"""A proxy with a fault, between a daemon and one of its servers. It runs until it is interrupted.

    python -m tests.faults.programs.proxy --to https://10.0.0.1:6443 --ca ca.crt --port 6444 \
        --kind '503, Retry-After of an hour' --requests /leases

The daemon is given `http://127.0.0.1:6444`, with the credentials that the server expects. `--kind list` prints the
kinds. With `--after 60 --for 40` the fault begins after a minute and lasts 40 seconds.
"""

import argparse
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.faults.scenarios.live import KINDS
from tests.faults.servers.proxy import FaultProxy


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.programs.proxy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--to", default="http://127.0.0.1:9090", help="URL of the server, without a path")
    parser.add_argument("--ca", type=Path, help="file with the CA of an https server")
    parser.add_argument("--port", type=int, default=0, help="on loopback; default: a free one")
    parser.add_argument("--kind", default="list", choices=["list", *KINDS], metavar="KIND")
    parser.add_argument("--requests", default="", help="regular expression over `METHOD /path?query`; default: all")
    parser.add_argument("--share", type=float, default=1.0, help="of these requests, 0 to 1")
    parser.add_argument("--after", type=float, default=0.0, help="seconds")
    parser.add_argument("--for", dest="seconds", type=float, default=float("inf"), help="seconds; default: to the end")
    args = parser.parse_args()
    if args.kind == "list":
        print("\n".join(KINDS))
        return 0
    proxy = FaultProxy(args.to, ca_file=args.ca, port=args.port)
    print(f"listening on {proxy.url}", flush=True)
    with suppress(KeyboardInterrupt):
        time.sleep(args.after)
        proxy.begin(replace(KINDS[args.kind], requests=args.requests, share=min(args.share, KINDS[args.kind].share)))
        print("the fault begins", flush=True)
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            time.sleep(0.5)
        print(f"the fault is over: {proxy.hits} requests met it", flush=True)
        proxy.end()
        while True:
            time.sleep(0.5)
    proxy.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
