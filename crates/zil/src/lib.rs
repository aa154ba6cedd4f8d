//! The intent log: chains, records, replay.
