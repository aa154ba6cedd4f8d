//! Values with a key and a number, so that the key is looked up once.

use std::collections::HashMap;
use std::hash::Hash;

/// Values that are found by their key or by their number.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    numbers: HashMap<K, u32>,
    values: Vec<Option<(K, V)>>,
    free: Vec<u32>,
}

impl<K: Copy + Eq + Hash, V: Default> Table<K, V> {
    pub(super) fn new() -> Table<K, V> {
        Table { numbers: HashMap::new(), values: Vec::new(), free: Vec::new() }
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
            self.values.len() as u32 - 1
        };
        self.numbers.insert(key, number);
        number
    }

    /// The value with this key.
    pub(super) fn find(&self, key: &K) -> Option<&V> {
        self.numbers.get(key).map(|&number| self.get(number))
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
        }
    }

    /// All values, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().flatten().map(|(key, value)| (key, value))
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }
}
