//! The integration tests of `zdb`: one program.

mod transcripts;
