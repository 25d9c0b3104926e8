//! Which families are wanted, and the tables that find a name among them.

use memchr::memmem;

/// How a `# TYPE` line begins in every exporter; the scanner looks for it behind a line feed.
pub(super) const TYPE_LINE: &[u8] = b"# TYPE ";

/// What series a family consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One series with the family's name.
    Gauge,
    /// One series, the family's name with `_total`.
    Counter,
    /// Three series: `_bucket`, `_sum`, `_count`.
    Histogram,
}

/// Which series of a family a sample belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The value of a gauge or a counter.
    Value,
    /// A bucket of a histogram; its label `le` is the upper bound.
    Bucket,
    /// The sum of a histogram.
    Sum,
    /// The count of a histogram.
    Count,
}

/// A family that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    name: String,
    shape: Shape,
}

impl Family {
    /// A family by name; a counter's without `_total`. A `:` in the name also matches `_`, which exporters write in its
    /// place under OpenMetrics (`vllm_num_requests_running`).
    #[must_use]
    pub fn new(name: impl Into<String>, shape: Shape) -> Self {
        Self { name: name.into(), shape }
    }

    fn parts(&self) -> &'static [(&'static str, Part)] {
        match self.shape {
            Shape::Gauge => &[("", Part::Value)],
            Shape::Counter => &[("_total", Part::Value)],
            Shape::Histogram => &[("_bucket", Part::Bucket), ("_sum", Part::Sum), ("_count", Part::Count)],
        }
    }
}

/// A set of wanted families. A family is known by its place in the list that the set was made from.
#[derive(Debug)]
pub struct Wanted {
    families: Vec<(Name, Shape)>,
    types: Table<bool>,
    series: Table<Part>,
    type_line: memmem::Finder<'static>,
}

impl Wanted {
    /// Prepares a set.
    #[must_use]
    pub fn new(families: &[Family]) -> Self {
        let mut types = Table::new();
        let mut series = Table::new();
        for (place, family) in families.iter().enumerate() {
            let without_total = family.shape == Shape::Counter;
            types.insert(&family.name, place, without_total);
            if without_total {
                types.insert(&format!("{}_total", family.name), place, false);
            }
            for (suffix, part) in family.parts() {
                series.insert(&format!("{}{suffix}", family.name), place, *part);
            }
        }
        Self {
            families: families.iter().map(|family| (Name::new(&family.name), family.shape)).collect(),
            types,
            series,
            type_line: memmem::Finder::new(b"\n# TYPE "),
        }
    }

    /// Where the next `# TYPE` line's preceding line feed is.
    pub(super) fn find_type_line(&self, page: &[u8]) -> Option<usize> {
        self.type_line.find(page)
    }

    /// The family that a `# TYPE` line names, and whether it is a counter named without `_total`.
    pub(super) fn type_named(&self, name: &[u8]) -> Option<(usize, bool)> {
        self.types.find(name)
    }

    /// The family and part that a series belongs to.
    pub(super) fn series_named(&self, name: &[u8]) -> Option<(usize, Part)> {
        self.series.find(name)
    }

    /// The part of one family that the line at the beginning of `rest` belongs to, and how long its name is.
    pub(super) fn series_of(&self, family: usize, rest: &[u8]) -> Option<(usize, Part, usize)> {
        let (name, shape) = self.families.get(family)?;
        let length = name.text.len();
        if !name.is(rest.get(..length)?) {
            return None;
        }
        let rest = &rest[length..];
        let (part, suffix) = match shape {
            Shape::Gauge => (Part::Value, 0),
            Shape::Counter => rest.starts_with(b"_total").then_some((Part::Value, 6))?,
            Shape::Histogram if rest.starts_with(b"_bucket") => (Part::Bucket, 7),
            Shape::Histogram if rest.starts_with(b"_count") => (Part::Count, 6),
            Shape::Histogram => rest.starts_with(b"_sum").then_some((Part::Sum, 4))?,
        };
        matches!(rest.get(suffix), Some(b'{' | b' ' | b'\t')).then_some((family, part, length + suffix))
    }
}

/// A name, ready to be compared.
#[derive(Debug)]
struct Name {
    text: Box<[u8]>,
    colon: Option<usize>,
}

impl Name {
    fn new(text: &str) -> Self {
        Self { text: text.as_bytes().into(), colon: text.find(':') }
    }

    /// Is it this name, as written or with `_` for the colon?
    fn is(&self, other: &[u8]) -> bool {
        if *self.text == *other {
            return true;
        }
        self.colon.is_some_and(|colon| {
            other.get(colon) == Some(&b'_')
                && other.get(..colon) == self.text.get(..colon)
                && other.get(colon + 1..) == self.text.get(colon + 1..)
        })
    }
}

/// Names by length: most names of a page are refused by their length, nearly all others by the first comparison.
#[derive(Debug)]
struct Table<T> {
    by_length: Vec<Vec<(Name, usize, T)>>,
}

impl<T: Copy> Table<T> {
    fn new() -> Self {
        Self { by_length: Vec::new() }
    }

    fn insert(&mut self, name: &str, family: usize, what: T) {
        if self.by_length.len() <= name.len() {
            self.by_length.resize_with(name.len() + 1, Vec::new);
        }
        self.by_length[name.len()].push((Name::new(name), family, what));
    }

    fn find(&self, name: &[u8]) -> Option<(usize, T)> {
        self.by_length
            .get(name.len())?
            .iter()
            .find(|(candidate, _, _)| candidate.is(name))
            .map(|&(_, family, what)| (family, what))
    }
}
