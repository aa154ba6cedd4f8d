use super::*;

/// Goal: each number has one name, and each name its number.
#[test]
fn names_and_numbers_are_one_to_one() {
    for number in 0..=255 {
        let id = PartitionId(number);
        assert_eq!(PartitionId::parse(&id.to_string()), Some(id));
        assert_eq!(PartitionId::parse(&id.to_string()[1..]), Some(id));
        assert_eq!(PartitionId::parse(&id.to_string()[6..]), Some(id));
        assert_eq!(PartitionId::parse(&number.to_string()), Some(id));
        assert_eq!(PartitionId::from_number(number.into()), Some(id));
    }
    let names = [(0, "/vicepa"), (25, "/vicepz"), (26, "/vicepaa"), (52, "/vicepba"), (255, "/vicepiv")];
    for (number, name) in names {
        assert_eq!(PartitionId(number).to_string(), name);
    }
}

/// Goal: what is no name or number of a partition is refused.
#[test]
fn other_names_are_refused() {
    for name in
        ["", "/vicep", "vicep", "/vicepiw", "/vicepzz", "/vicepaaa", "/vicepA", "A", "/x", "256", "1x", "é"]
    {
        assert_eq!(PartitionId::parse(name), None, "{name}");
    }
    assert_eq!((PartitionId::from_number(-1), PartitionId::from_number(256)), (None, None));
}
