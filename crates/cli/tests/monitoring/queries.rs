//! The series that a query of Prometheus names, and the series that a page of metrics has: both are written as
//! `name{label="value"}`.

use std::collections::BTreeSet;

/// Operators and modifiers, which are no metrics.
const KEYWORDS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "atan2"];
/// Words before a list of labels in parentheses.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Aggregations, which a list of labels may follow instead of a parenthesis.
const AGGREGATIONS: [&str; 11] =
    ["sum", "min", "max", "avg", "count", "group", "stddev", "stdvar", "topk", "bottomk", "quantile"];

/// What a query asks for.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Query {
    pub selectors: Vec<Selector>,
    /// Labels by which it groups or joins.
    pub labels: BTreeSet<String>,
}

/// A metric, with conditions on its labels.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Selector {
    pub metric: String,
    pub conditions: Vec<Condition>,
}

/// A condition on a label, such as `path=~"packets|local"`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Condition {
    pub label: String,
    pub operator: String,
    pub value: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    Text(String),
    Symbol(char),
}

impl Query {
    /// Parses a query. Panics if it is malformed.
    pub fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let mut query = Self::default();
        let mut at = 0;
        while at < tokens.len() {
            let Token::Word(word) = &tokens[at] else {
                at += 1;
                continue;
            };
            at += 1;
            let calls = tokens.get(at) == Some(&Token::Symbol('('));
            if BEFORE_LABELS.contains(&word.as_str()) {
                if calls {
                    at += 1;
                    while tokens[at] != Token::Symbol(')') {
                        if let Token::Word(label) = &tokens[at] {
                            query.labels.insert(label.clone());
                        }
                        at += 1;
                    }
                }
            } else if !calls && !KEYWORDS.contains(&word.as_str()) && !AGGREGATIONS.contains(&word.as_str()) {
                let conditions = if tokens.get(at) == Some(&Token::Symbol('{')) {
                    conditions(&tokens, &mut at, text)
                } else {
                    Vec::new()
                };
                query.selectors.push(Selector { metric: word.clone(), conditions });
            }
        }
        query
    }
}

/// Parses the conditions in braces, of which the first is at `at`, and moves `at` behind them.
fn conditions(tokens: &[Token], at: &mut usize, text: &str) -> Vec<Condition> {
    let mut conditions = Vec::new();
    *at += 1;
    while tokens[*at] != Token::Symbol('}') {
        let Token::Word(label) = &tokens[*at] else { panic!("a label is missing in {text}") };
        *at += 1;
        let mut operator = String::new();
        while let Token::Symbol(symbol) = tokens[*at] {
            operator.push(symbol);
            *at += 1;
        }
        assert!(["=", "!=", "=~", "!~"].contains(&operator.as_str()), "{operator} in {text}");
        let Token::Text(value) = &tokens[*at] else { panic!("the value of {label} is missing in {text}") };
        conditions.push(Condition { label: label.clone(), operator, value: value.clone() });
        *at += 1;
        if tokens[*at] == Token::Symbol(',') {
            *at += 1;
        }
    }
    *at += 1;
    conditions
}

/// Splits a query. Numbers, durations and variables of the dashboard are left out.
fn tokens(text: &str) -> Vec<Token> {
    let in_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let mut tokens = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '"' {
            let mut value = String::new();
            loop {
                match letters.next().unwrap_or_else(|| panic!("a text has no end in {text}")) {
                    '"' => break,
                    '\\' => match letters.next() {
                        Some('n') => value.push('\n'),
                        Some(escaped) => value.push(escaped),
                        None => panic!("a text has no end in {text}"),
                    },
                    other => value.push(other),
                }
            }
            tokens.push(Token::Text(value));
        } else if in_word(letter) || letter == '$' {
            let mut word = String::from(letter);
            let is_number = letter.is_ascii_digit();
            while let Some(next) = letters.next_if(|next| in_word(*next) || (is_number && *next == '.')) {
                word.push(next);
            }
            if !is_number && letter != '$' {
                tokens.push(Token::Word(word));
            }
        } else if !letter.is_whitespace() {
            tokens.push(Token::Symbol(letter));
        }
    }
    tokens
}

/// Returns the series of a page of metrics.
pub fn series(page: &str) -> Vec<Selector> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(|line| Query::parse(line.rsplit_once(' ').map_or(line, |(series, _)| series)).selectors).collect()
}

#[test]
fn query_is_split_into_series_and_labels() {
    let text = r#"histogram_quantile(0.99, sum by (le, path) (rate(a_seconds_bucket{instance=~"$datanode",path!="x"}[5m])))
        / on (instance) group_left (version) topk(10, b:c) > bool 1e3 and time() - d offset 1h unless sum(e)"#;
    let query = Query::parse(text);
    let metrics: Vec<&str> = query.selectors.iter().map(|selector| selector.metric.as_str()).collect();
    assert_eq!(metrics, ["a_seconds_bucket", "b:c", "d", "e"]);
    assert_eq!(query.labels.iter().map(String::as_str).collect::<Vec<_>>(), ["instance", "le", "path", "version"]);
    let conditions = &query.selectors[0].conditions;
    assert_eq!((conditions[0].operator.as_str(), conditions[0].value.as_str()), ("=~", "$datanode"));
    assert_eq!((conditions[1].label.as_str(), conditions[1].operator.as_str()), ("path", "!="));
}

#[test]
fn page_has_series_with_labels() {
    let page = "# HELP a Text with a{b=\"c\"}\n# TYPE a gauge\na{b=\"x y\",c=\"\\\"}\"} 1.5\nd_total 7\n";
    let series = series(page);
    assert_eq!(series.len(), 2);
    let values: Vec<&str> = series[0].conditions.iter().map(|condition| condition.value.as_str()).collect();
    assert_eq!((series[0].metric.as_str(), values), ("a", vec!["x y", "\"}"]));
    assert_eq!((series[1].metric.as_str(), series[1].conditions.len()), ("d_total", 0));
}
