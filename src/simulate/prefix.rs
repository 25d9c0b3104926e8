//! The prefix cache of one replica: which blocks of prompts it has seen, the least recently used forgotten first. Pure.
//!
//! vLLM keeps the keys and values of a block until its memory is needed, and finds it again by a hash of all tokens up to
//! its end. Here the hashes come with the requests. All of the KV cache counts as room: blocks that running requests hold
//! are cached as well, and what their outputs take is left out, so that hits are a little too many.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The hashes of a prompt's blocks, each over all tokens up to its end, as public traces with prefixes have them.
pub type PrefixHashes = Arc<[u64]>;

/// A cache of block hashes.
#[derive(Clone, Debug, Default)]
pub struct PrefixCache {
    room: usize,
    /// When each was used last.
    used: HashMap<u64, u64>,
    /// The same by time; uses are counted, so no two are the same.
    order: BTreeMap<u64, u64>,
    uses: u64,
}

impl PrefixCache {
    /// An empty one with room for so many blocks.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// How many of the leading blocks are there.
    #[must_use]
    pub fn hits(&self, hashes: &[u64]) -> usize {
        hashes.iter().take_while(|hash| self.used.contains_key(hash)).count()
    }

    /// These blocks are used now.
    pub fn touch(&mut self, hashes: &[u64]) {
        // The end of a prompt is forgotten before its beginning: without the beginning it can't be found.
        for hash in hashes.iter().rev() {
            self.uses += 1;
            if let Some(before) = self.used.insert(*hash, self.uses) {
                self.order.remove(&before);
            }
            self.order.insert(self.uses, *hash);
        }
        while self.used.len() > self.room {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.used.remove(&oldest);
        }
    }

    /// Blocks that are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// None is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leading_blocks_are_found_and_the_least_used_go_first() {
        let mut cache = PrefixCache::new(4);
        cache.touch(&[1, 2, 3]);
        assert_eq!(cache.hits(&[1, 2, 9]), 2);
        assert_eq!(cache.hits(&[9, 2, 3]), 0);
        cache.touch(&[4, 5]);
        // Of the first prompt the end is gone, its beginning is not.
        assert_eq!((cache.hits(&[1, 2, 3]), cache.hits(&[4, 5]), cache.len()), (2, 2, 4));
        cache.touch(&[1, 2]);
        cache.touch(&[6, 7]);
        assert_eq!((cache.hits(&[1, 2]), cache.hits(&[4, 5])), (2, 0));
    }

    #[test]
    fn a_prompt_longer_than_the_cache_keeps_its_beginning() {
        let mut cache = PrefixCache::new(2);
        cache.touch(&[1, 2, 3, 4]);
        assert_eq!((cache.hits(&[1, 2, 3, 4]), cache.len()), (2, 2));
        assert!(PrefixCache::new(0).is_empty());
    }
}
