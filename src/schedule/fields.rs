//! Five cron fields to bit sets, with the grammar of robfig/cron v3 as KEDA uses it. Pure.
//!
//! Accepted: `N`, `N-M`, `*`, `?` (the same as `*`), a step on each, `N/step` for N to the maximum, lists, three-letter
//! names of months and days in any case. What robfig accepts by accident (`1,,2`, `*-5`, `+5`) is refused: such text is
//! a slip, and a slip in a floor costs an outage. Every message says what to write instead.

/// The minutes that an expression names, as sets of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) days_of_month: u64,
    pub(super) months: u64,
    pub(super) days_of_week: u64,
    /// A day must match both day fields, as one of them is `*`; otherwise either is enough.
    pub(super) both_days: bool,
}

struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MINUTE: Field = Field { name: "minute", least: 0, most: 59, names: &[] };
const HOUR: Field = Field { name: "hour", least: 0, most: 23, names: &[] };
const DAY_OF_MONTH: Field = Field { name: "day-of-month", least: 1, most: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    least: 1,
    most: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const DAY_OF_WEEK: Field = Field {
    name: "day-of-week",
    least: 0,
    most: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

/// The longest that a month can be, from January.
const LONGEST_MONTH: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// What the descriptors of other crons stand for.
const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Fields {
    /// Reads an expression. An error is one line that says what to write instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("empty: write five fields, such as \"0 8 * * 1-5\"".to_owned());
        }
        if text.starts_with('@') {
            return Err(refuse_descriptor(text));
        }
        if let Some((prefix, rest)) = text.split_once('=')
            && matches!(prefix, "TZ" | "CRON_TZ")
        {
            let (zone, expression) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            return Err(format!(
                "a {prefix}= prefix is not accepted: write \"{}\" here and {zone} as the timezone",
                expression.trim()
            ));
        }
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minute, hour, date, month, weekday] = parts[..] else {
            return Err(format!(
                "{} fields: write exactly five, minute hour day-of-month month day-of-week{}",
                parts.len(),
                if parts.len() > 5 { " (no seconds, no years)" } else { "" }
            ));
        };
        let (minutes, _) = MINUTE.parse(minute)?;
        let (hours, _) = HOUR.parse(hour)?;
        let (days_of_month, any_day_of_month) = DAY_OF_MONTH.parse(date)?;
        let (months, _) = MONTH.parse(month)?;
        let (days_of_week, any_day_of_week) = DAY_OF_WEEK.parse(weekday)?;
        let fields = Self {
            minutes,
            hours,
            days_of_month,
            months,
            days_of_week,
            both_days: any_day_of_month || any_day_of_week,
        };
        if any_day_of_week && !fields.names_a_real_day() {
            return Err(format!("never fires: day-of-month {date} doesn't exist in month {month}"));
        }
        Ok(fields)
    }

    /// Has any of the months one of the days of the month?
    fn names_a_real_day(&self) -> bool {
        (1..=12).any(|month| {
            let days_up_to_longest = (2_u64 << LONGEST_MONTH[month as usize - 1]) - 1;
            contains(self.months, month) && self.days_of_month & days_up_to_longest != 0
        })
    }

    /// Does a day match? `day_of_week` counts from Sunday = 0.
    pub(super) fn matches_day(&self, month: u32, day_of_month: u32, day_of_week: u32) -> bool {
        let of_month = contains(self.days_of_month, day_of_month);
        let of_week = contains(self.days_of_week, day_of_week);
        contains(self.months, month) && if self.both_days { of_month && of_week } else { of_month || of_week }
    }
}

/// Is this number in the set?
pub(super) fn contains(set: u64, number: u32) -> bool {
    set >> number & 1 == 1
}

fn refuse_descriptor(text: &str) -> String {
    let instead = DESCRIPTORS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
    match instead {
        Some((name, fields)) => format!("{name} is not accepted: write \"{fields}\""),
        None => format!("{text} is not accepted: write five fields, such as \"0 8 * * 1-5\""),
    }
}

impl Field {
    /// The set of a field, and whether it holds a plain `*`.
    fn parse(&self, text: &str) -> Result<(u64, bool), String> {
        let mut set = 0;
        let mut any = false;
        for item in text.split(',') {
            if item.is_empty() {
                return Err(format!(
                    "{} {text:?} has an empty entry: remove the comma that has nothing beside it",
                    self.name
                ));
            }
            let (bits, star) = self.parse_item(item)?;
            set |= bits;
            any |= star;
        }
        Ok((set, any))
    }

    fn parse_item(&self, item: &str) -> Result<(u64, bool), String> {
        let mut parts = item.split('/');
        let range = parts.next().unwrap_or_default();
        let step_text = parts.next();
        if parts.next().is_some() {
            return Err(format!("{} {item:?} has more than one slash: write range/step", self.name));
        }
        let step = match step_text {
            None => 1,
            Some(text) => self.parse_step(item, text)?,
        };
        let (first, last, star) = self.parse_range(range, step_text.is_some())?;
        let bits = (first..=last).step_by(step).fold(0, |set, number| set | 1_u64 << number);
        Ok((bits, star && step == 1))
    }

    fn parse_step(&self, item: &str, text: &str) -> Result<usize, String> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("{} {item:?} has the step {text:?}: write a whole number", self.name));
        }
        // A step beyond the range is legal and means its first number only; so does one beyond usize.
        match text.parse().unwrap_or(usize::MAX) {
            0 => Err(format!("{} {item:?} has the step 0: write 1 or more", self.name)),
            step => Ok(step),
        }
    }

    fn parse_range(&self, range: &str, has_step: bool) -> Result<(u32, u32, bool), String> {
        let mut ends = range.split('-');
        let first_text = ends.next().unwrap_or_default();
        let last_text = ends.next();
        if ends.next().is_some() {
            return Err(format!("{} {range:?} has more than one hyphen: write first-last", self.name));
        }
        if matches!(first_text, "*" | "?") {
            return match last_text {
                None => Ok((self.least, self.most, true)),
                Some(last) => Err(format!(
                    "{} {range:?} mixes {first_text} with a range: write {first_text} or {}-{last}",
                    self.name, self.least
                )),
            };
        }
        let first = self.parse_number(first_text, range)?;
        let last = match last_text {
            Some(text) => self.parse_number(text, range)?,
            // `5/15` means from 5 on.
            None if has_step => self.most,
            None => first,
        };
        if first > last {
            return Err(format!(
                "{} {range:?} runs backwards: write {}",
                self.name,
                self.as_two_ranges(first, last)
            ));
        }
        Ok((first, last, false))
    }

    /// `22-6` as `22-23,0-6`.
    fn as_two_ranges(&self, first: u32, last: u32) -> String {
        let range = |from: u32, to: u32| {
            if from == to { self.spell(from) } else { format!("{}-{}", self.spell(from), self.spell(to)) }
        };
        format!("{},{}", range(first, self.most), range(self.least, last))
    }

    fn spell(&self, number: u32) -> String {
        let index = (number - self.least) as usize;
        self.names.get(index).map_or_else(|| number.to_string(), |name| name.to_ascii_uppercase())
    }

    fn parse_number(&self, text: &str, range: &str) -> Result<u32, String> {
        if let Some(index) = self.names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
            return Ok(self.least + index as u32);
        }
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.refuse_word(text, range));
        }
        let number: u32 = text.parse().unwrap_or(u32::MAX);
        if number > self.most {
            let hint = match (self.name, number) {
                ("day-of-week", 7) => " (use 0 or SUN)",
                ("hour", 24) | ("minute", 60) => " (use 0)",
                _ => "",
            };
            return Err(format!("{} {text} is above {}{hint}", self.name, self.most));
        }
        if number < self.least {
            return Err(format!("{} {text} is below {}", self.name, self.least));
        }
        Ok(number)
    }

    fn refuse_word(&self, text: &str, range: &str) -> String {
        if text.is_empty() {
            return format!("{} {range:?} lacks a number beside the hyphen: write first-last", self.name);
        }
        if let Some(digits) = text.strip_prefix('+')
            && !digits.is_empty()
        {
            return format!("{} {text:?} has a sign: write {digits}", self.name);
        }
        let short = text
            .get(..3)
            .filter(|head| self.names.iter().any(|name| head.eq_ignore_ascii_case(name)))
            .filter(|_| text.bytes().all(|b| b.is_ascii_alphabetic()));
        if let Some(short) = short {
            return format!("{} {text:?} is too long: write {}", self.name, short.to_ascii_uppercase());
        }
        let kinds = match self.names {
            [] => format!("a number from {} to {}", self.least, self.most),
            [first, .., last] | [first @ last] => format!(
                "a number from {} to {} or a name from {} to {}",
                self.least,
                self.most,
                first.to_ascii_uppercase(),
                last.to_ascii_uppercase()
            ),
        };
        format!(
            "{} {text:?} is not known here: write {kinds} (L, W and # are not part of KEDA's cron)",
            self.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Fields::parse(text).expect_err(text)
    }

    #[test]
    fn what_kedas_grammar_allows_is_read() {
        let weekdays = Fields::parse("0 9 * * Mon-Fri").expect("good");
        assert_eq!(weekdays, Fields::parse("0 9 ? * 1-5").expect("good"));
        assert_eq!(weekdays.days_of_week, 0b011_1110);
        assert_eq!(
            Fields::parse("5/15 * * * *").expect("good").minutes,
            1 << 5 | 1 << 20 | 1 << 35 | 1 << 50
        );
        assert_eq!(Fields::parse("*/90 * * * *").expect("good").minutes, 1);
        assert_eq!(Fields::parse("007 * * JAN *").expect("good").minutes, 1 << 7);
    }

    #[test]
    fn either_day_field_is_enough_unless_one_is_a_star() {
        for (text, both) in [
            ("0 9 1 * 1", false),
            ("0 9 */2 * 1", false),
            ("0 9 1 * */2", false),
            ("0 9 1 * */1", true),
            ("0 9 ? * 1", true),
            ("0 9 1,* * 1", true),
        ] {
            assert_eq!(Fields::parse(text).expect("good").both_days, both, "{text}");
        }
    }

    #[test]
    fn every_refusal_says_what_to_write_instead() {
        for (text, message) in [
            ("0 9 * * 7", "day-of-week 7 is above 6 (use 0 or SUN)"),
            ("0 9 * * 5-7", "day-of-week 7 is above 6 (use 0 or SUN)"),
            ("0 24 * * *", "hour 24 is above 23 (use 0)"),
            ("60 * * * *", "minute 60 is above 59 (use 0)"),
            ("0 0 1 0 *", "month 0 is below 1"),
            ("0 0 99999999999 * *", "day-of-month 99999999999 is above 31"),
            ("0 22-6 * * *", "hour \"22-6\" runs backwards: write 22-23,0-6"),
            ("0 9 * * FRI-MON", "day-of-week \"FRI-MON\" runs backwards: write FRI-SAT,SUN-MON"),
            ("0 9 * * monday", "day-of-week \"monday\" is too long: write MON"),
            (", * * * *", "minute \",\" has an empty entry: remove the comma that has nothing beside it"),
            (
                "1,,2 * * * *",
                "minute \"1,,2\" has an empty entry: remove the comma that has nothing beside it",
            ),
            ("*-5 * * * *", "minute \"*-5\" mixes * with a range: write * or 0-5"),
            ("+5 * * * *", "minute \"+5\" has a sign: write 5"),
            ("-5 * * * *", "minute \"-5\" lacks a number beside the hyphen: write first-last"),
            ("1-2-3 * * * *", "minute \"1-2-3\" has more than one hyphen: write first-last"),
            ("1/2/3 * * * *", "minute \"1/2/3\" has more than one slash: write range/step"),
            ("*/0 * * * *", "minute \"*/0\" has the step 0: write 1 or more"),
            ("*/x * * * *", "minute \"*/x\" has the step \"x\": write a whole number"),
            ("@daily", "@daily is not accepted: write \"0 0 * * *\""),
            ("@every 5m", "@every 5m is not accepted: write five fields, such as \"0 8 * * 1-5\""),
            (
                "TZ=Asia/Tokyo 0 9 * * *",
                "a TZ= prefix is not accepted: write \"0 9 * * *\" here and Asia/Tokyo as the timezone",
            ),
            (
                "0 0 0 * * *",
                "6 fields: write exactly five, minute hour day-of-month month day-of-week (no seconds, no years)",
            ),
            ("0 8", "2 fields: write exactly five, minute hour day-of-month month day-of-week"),
            ("  ", "empty: write five fields, such as \"0 8 * * 1-5\""),
            ("0 0 31 2 *", "never fires: day-of-month 31 doesn't exist in month 2"),
            ("0 0 31 2,4,6 ?", "never fires: day-of-month 31 doesn't exist in month 2,4,6"),
        ] {
            assert_eq!(refused(text), message, "{text}");
        }
        for text in ["0 0 L * *", "0 0 * * 5L", "0 0 * * 1#2", "0 0 * * é", "ü * * * *"] {
            assert!(refused(text).contains("is not known here"), "{text}: {}", refused(text));
        }
    }

    #[test]
    fn a_day_that_never_comes_is_fine_beside_a_day_of_the_week() {
        assert!(Fields::parse("0 0 31 2 1").is_ok());
        assert!(Fields::parse("0 0 29 2 *").is_ok());
    }
}
