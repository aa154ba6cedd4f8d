//! Objects: object sets, dnodes, block trees, ZAP, system attributes.
