//! The integration tests of `zdb`, as one program.

mod transcripts;
