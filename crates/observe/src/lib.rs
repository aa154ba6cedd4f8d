//! What the rooms count with: counters and histograms.
