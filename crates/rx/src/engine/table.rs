//! Values with a key and a number, so that the key is looked up once.

use std::collections::HashMap;
use std::hash::Hash;

/// Values that are found by their key or by their number.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    numbers: HashMap<K, u32>,
    values: Vec<Option<(K, V)>>,
    free: Vec<u32>,
    /// The numbers in use, without gaps, and the place of each among them.
    used: Vec<u32>,
    places: Vec<u32>,
}

impl<K: Copy + Eq + Hash, V: Default> Table<K, V> {
    pub(super) fn new() -> Table<K, V> {
        Table {
            numbers: HashMap::new(),
            values: Vec::new(),
            free: Vec::new(),
            used: Vec::new(),
            places: Vec::new(),
        }
    }

    /// The number of the value with this key, which is made if there is none.
    pub(super) fn number(&mut self, key: K) -> u32 {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let value = Some((key, V::default()));
        let number = if let Some(number) = self.free.pop() {
            self.values[number as usize] = value;
            number
        } else {
            self.values.push(value);
            self.places.push(0);
            self.values.len() as u32 - 1
        };
        self.places[number as usize] = self.used.len() as u32;
        self.used.push(number);
        self.numbers.insert(key, number);
        number
    }

    /// The number of the value with this key, if there is one.
    pub(super) fn find(&self, key: &K) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// The value with this number.
    pub(super) fn get(&self, number: u32) -> &V {
        &self.values[number as usize].as_ref().expect("a number is used until its value is removed").1
    }

    /// The value with this number.
    pub(super) fn get_mut(&mut self, number: u32) -> &mut V {
        &mut self.values[number as usize].as_mut().expect("a number is used until its value is removed").1
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, number: u32) {
        if let Some((key, _)) = self.values[number as usize].take() {
            self.numbers.remove(&key);
            self.free.push(number);
            let at = self.places[number as usize];
            self.used.swap_remove(at as usize);
            if let Some(&moved) = self.used.get(at as usize) {
                self.places[moved as usize] = at;
            }
        }
    }

    /// One of the values. Each has an index below [`Table::len`], which changes by removals.
    pub(super) fn at(&self, index: usize) -> Option<(&K, &V)> {
        let number = *self.used.get(index)?;
        self.values[number as usize].as_ref().map(|(key, value)| (key, value))
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }
}
