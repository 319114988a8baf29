//! The few SQL statements that are understood. Pure.

use super::Status;
use super::shared::Shared;

/// A statement that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// `SELECT 1`, or another whole number.
    SelectNumber(i32),
    /// `SELECT mz_version()`.
    SelectVersion,
    /// `SHOW name`.
    Show(String),
}

/// An answer of one row and one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Number(i32),
    Text(String),
}

/// A refusal as Postgres words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) sqlstate: &'static str,
    pub(crate) message: String,
}

impl Statement {
    /// Reads one statement.
    pub(crate) fn parse(sql: &str) -> Result<Self, Refusal> {
        let text = sql.trim().trim_end_matches(';').trim_end();
        let words: Vec<_> = text
            .split_whitespace()
            .map(str::to_ascii_lowercase)
            .collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let statement = match words.as_slice() {
            ["select", "mz_version()"] => Some(Self::SelectVersion),
            ["select", number] => number.parse().ok().map(Self::SelectNumber),
            ["show", name] => Some(Self::Show((*name).trim_matches('"').to_owned())),
            _ => None,
        };
        statement.ok_or_else(|| Refusal {
            sqlstate: "0A000",
            message: format!(
                "this stand-in for environmentd does not support the statement: {text}"
            ),
        })
    }

    /// The name of its column.
    pub(crate) fn column(&self) -> &str {
        match self {
            Self::SelectNumber(_) => "?column?",
            Self::SelectVersion => "mz_version",
            Self::Show(name) => name,
        }
    }

    /// Its result, from a generation that leads.
    pub(crate) fn answer(&self, shared: &Shared) -> Result<Answer, Refusal> {
        if shared.status() != Status::IsLeader {
            return Err(Refusal {
                sqlstate: "57P03",
                message: format!(
                    "generation {} does not lead: {:?}",
                    shared.generation,
                    shared.status()
                ),
            });
        }
        let version = || format!("{} (stand-in)", shared.version);
        match self {
            Self::SelectNumber(number) => Ok(Answer::Number(*number)),
            Self::SelectVersion => Ok(Answer::Text(version())),
            Self::Show(name) if name == "mz_version" => Ok(Answer::Text(version())),
            Self::Show(name) => shared
                .parameters
                .get(name)
                .map(Answer::Text)
                .ok_or_else(|| Refusal {
                    sqlstate: "42704",
                    message: format!("unrecognized configuration parameter {name:?}"),
                }),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("SELECT 1", Some(Statement::SelectNumber(1)))]
    #[case("select\n 1 ;", Some(Statement::SelectNumber(1)))]
    #[case("SELECT mz_version()", Some(Statement::SelectVersion))]
    #[case("SHOW max_connections;", Some(Statement::Show("max_connections".into())))]
    #[case("SELECT * FROM t", None)]
    #[case("CREATE CLUSTER c", None)]
    #[case("SHOW", None)]
    fn statements(#[case] sql: &str, #[case] expected: Option<Statement>) {
        assert_eq!(Statement::parse(sql).ok(), expected);
    }
}
