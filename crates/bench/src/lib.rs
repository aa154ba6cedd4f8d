//! Benchmarks that print JSON.
