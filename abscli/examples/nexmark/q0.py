"""NEXMark 0, pass through: every bid."""

from abscli import Job

job = Job("nexmark-q0", parallelism=2)
bids = job.nexmark("bid", total=500_000, id="bids")
bids.to_jsonl("out", id="shown")
