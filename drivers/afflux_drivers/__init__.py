"""From a tensor's blocks to packets and back: worker, codec, software aggregator."""
