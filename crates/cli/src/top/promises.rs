//! The view `promises`: which client has promises for which volume, at this moment.

use api::Top;

use super::table::{Cell, Column, Table, Unit, column};

/// The columns of the view.
pub(super) const COLUMNS: [Column; 6] = [
    column("CLIENT", "client", Unit::Text, "the client's address and port"),
    column("VOLUME", "volume", Unit::Number, "the volume's number"),
    column("NAME", "name", Unit::Text, "its name, if memory has it"),
    column("PROMISES", "promises", Unit::Number, "for so many of its files, and the volume"),
    column("WHOLE", "whole", Unit::Text, "whether for the volume, as of a read-only one"),
    column("UUID", "uuid", Unit::Text, "the client's UUID"),
];

/// The table of all pairs, those with the most promises first.
pub(super) fn table(now: &Top) -> Table {
    let text = |text: &str| if text.is_empty() { Cell::Nothing } else { text.into() };
    let (mut rows, mut sum) = (Vec::new(), now.other_promises);
    for of in &now.promises {
        let promises = of.files.saturating_add(u64::from(of.whole));
        sum = sum.saturating_add(promises);
        rows.push(vec![
            text(&of.address),
            u64::from(of.volume).into(),
            text(&of.name),
            promises.into(),
            if of.whole { "yes" } else { "no" }.into(),
            of.uuid.as_deref().map_or(Cell::Nothing, Cell::from),
        ]);
    }
    let mut total = vec![Cell::Nothing; COLUMNS.len()];
    (total[0], total[3]) = ("total".into(), sum.into());
    Table { sum: Some(total), ..Table::new(&COLUMNS, rows) }
}
