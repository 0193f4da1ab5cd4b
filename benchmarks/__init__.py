"""Every claim about speed, measured beside its own floor and beside the peers, in one interleaved run."""
