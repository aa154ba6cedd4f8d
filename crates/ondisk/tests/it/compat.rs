//! docs/reference/features.md says of each feature flag what the code says.

use std::fs;
use std::path::Path;

use ondisk::feature::FEATURES;

/// The table has the features of the code, in its order, with what is read and written.
#[test]
fn the_page_of_features_says_what_the_code_does() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/features.md");
    let text = fs::read_to_string(page).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split('|').map(str::trim).skip(1).collect::<Vec<_>>())
        .filter(|cells| cells.len() == 6 && cells[1].starts_with('`'))
        .collect();
    let said = |can: bool, otherwise: &'static str| if can { "yes" } else { otherwise };
    let expected: Vec<_> = FEATURES
        .iter()
        .map(|f| {
            let (read, written) = (said(f.can_read(), "no"), said(f.can_write(), "enabled only"));
            (f.name.to_owned(), format!("`{}`", f.guid), read, written)
        })
        .collect();
    let shown: Vec<_> = rows.iter().map(|c| (c[0].to_owned(), c[1].to_owned(), c[2], c[3])).collect();
    assert_eq!(shown, expected);
}
