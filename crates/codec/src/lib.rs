//! Checksums, compressors and ciphers of the OpenZFS format.
