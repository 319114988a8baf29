//! `bench handover`: how leadership moves, for the operator, for other elections and for a bare script, all on one API
//! server and on this machine.
//!
//! All of the operator's figures and the floor's, the peers' restarts, and the handovers of those that take a few seconds
//! for one, are taken while nothing else runs. The rest of the peers' figures consists of waiting: crashes, starts, idling,
//! and the handovers of the slow ones ([`Name::hands_over_slowly`]). For that all peers run side by side, each in a
//! namespace and under a Lease of its own, one figure after the other.

mod arena;
mod audit;
mod candidate;
mod first_reconcile;
mod floor;
mod prompt;
mod replica;
mod report;
mod rounds;
mod sightings;
mod statistics;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mzcompose::control_plane::{ControlPlane, Options};
use mzcompose::peers::Peers;
use mzcompose::prerequisites;
use mzcompose::progress::{Progress, Step};
use mzcompose::tools::{Module, Tools};

use crate::interrupt;
use crate::output::say;

use arena::Arena;
use audit::AuditLog;
use candidate::{Candidate, Name};
use report::{Figure, Figures, FirstReconcile, Ratios, Report, Starts};
use statistics::Summary;

/// What to measure, and how often; 0 leaves something out.
#[derive(Debug, Clone, clap::Args)]
pub struct Handover {
    /// Only these candidates.
    #[arg(long, value_enum, num_args = 1.., value_name = "NAME")]
    only: Vec<Name>,
    /// Handovers of the operator and of the floor.
    #[arg(long, default_value_t = 100, value_name = "N")]
    rounds: usize,
    /// Handovers of each peer.
    #[arg(long, default_value_t = 20, value_name = "N")]
    peer_rounds: usize,
    /// Stops of the operator's leader while the API server hangs.
    #[arg(long, default_value_t = 5, value_name = "N")]
    hang_rounds: usize,
    /// Crashes of the operator's leader.
    #[arg(long, default_value_t = 10, value_name = "N")]
    crash_rounds: usize,
    /// Crashes of each peer's leader.
    #[arg(long, default_value_t = 3, value_name = "N")]
    peer_crash_rounds: usize,
    /// How often five replicas are started at once.
    #[arg(long, default_value_t = 20, value_name = "N")]
    start_rounds: usize,
    /// How often the leader's process is killed and started again.
    #[arg(long, default_value_t = 5, value_name = "N")]
    restart_rounds: usize,
    /// For how long the requests of idle replicas are counted.
    #[arg(long, default_value_t = 60, value_name = "N")]
    idle_seconds: u64,
    /// How many environments the operator's new leader has to look after.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    environments: usize,
    /// Print the figures as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Measures all candidates and prints what was found; fails if something came to nothing.
pub async fn handover(options: &Handover, progress: &Progress) -> Result<ExitCode> {
    let report = interrupt::interruptible(measure_all(options, progress)).await?;
    if options.json {
        let json = serde_json::to_string_pretty(&report).context("writing the report")?;
        say(json)?;
    } else {
        say(table::table(&report).trim_end())?;
    }
    let complete = report.candidates.iter().all(|one| one.failures.is_empty());
    Ok(if complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What all measurements share.
struct Bench<'a> {
    options: &'a Handover,
    progress: &'a Progress,
    control_plane: &'a ControlPlane,
    client: Client,
    audit: AuditLog,
}

/// Whose turn it is, and the program, or why there is none; the floor has none.
type Entrant = (Name, Option<Result<Candidate>>);

/// All programs are built before anything is measured.
async fn entrants(options: &Handover, progress: &Progress) -> Result<Vec<Entrant>> {
    let peers = Peers::open()?;
    let mut entrants = vec![];
    for name in options.candidates() {
        let candidate = match name {
            Name::Floor => None,
            _ => Some(Candidate::build(name, &peers, progress).await),
        };
        entrants.push((name, candidate));
    }
    Ok(entrants)
}

async fn measure_all(options: &Handover, progress: &Progress) -> Result<Report> {
    for requirements in [prerequisites::BUILD, prerequisites::CONTROL_PLANE] {
        prerequisites::ensure(requirements, progress).await?;
    }
    let tools = Tools::ensure(&[Module::Kubernetes], progress).await?;
    let entrants = entrants(options, progress).await?;
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let audit = dir.path().join("audit.log");
    let step = progress.step("start control plane");
    let control_plane = ControlPlane::start(
        &tools,
        &Options {
            dir: Some(dir.path().into()),
            audit_log: Some(audit.clone()),
            ..Options::default()
        },
    )
    .await?;
    let client = control_plane.access().client().await?;
    arena::grant(&client).await?;
    step.done();
    let kubernetes = client.apiserver_version().await?.git_version;
    let bench = Bench {
        options,
        progress,
        control_plane: &control_plane,
        client,
        audit: AuditLog::at(audit),
    };
    let mut figures = bench.measure(entrants).await;
    figures.sort_by_key(|figures| figures.name != Name::Orchestratord.as_str());
    control_plane.stop().await?;
    Ok(Report {
        date: Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        kubernetes,
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        ratios: Ratios::of(&figures, Name::Orchestratord.as_str(), Name::Floor.as_str()),
        candidates: figures,
    })
}

impl Handover {
    fn candidates(&self) -> Vec<Name> {
        let all = Name::value_variants().iter().copied();
        all.filter(|name| self.only.is_empty() || self.only.contains(name))
            .collect()
    }

    fn rounds_of(&self, name: Name) -> usize {
        if name.peer().is_some() {
            self.peer_rounds
        } else {
            self.rounds
        }
    }

    fn crashes_of(&self, name: Name) -> usize {
        if name.peer().is_some() {
            self.peer_crash_rounds
        } else {
            self.crash_rounds
        }
    }
}

impl Bench<'_> {
    /// Each candidate alone, then the rest of all peers side by side.
    async fn measure(&self, entrants: Vec<Entrant>) -> Vec<Figures> {
        let mut begun = vec![];
        for (name, candidate) in entrants {
            begun.push(self.measure_alone(name, candidate).await);
        }
        let rest = begun.into_iter().map(async |(mut figures, arena)| {
            if let Some(mut arena) = arena {
                self.measure_waits(&mut arena, &mut figures).await;
            }
            figures
        });
        join_all(rest).await
    }

    /// What is taken while nothing else runs, and where the rest is to be taken, if there is a rest.
    async fn measure_alone(
        &self,
        name: Name,
        candidate: Option<Result<Candidate>>,
    ) -> (Figures, Option<Arena<'_>>) {
        let mut figures = Figures {
            name: name.as_str(),
            ..Figures::default()
        };
        let Some(candidate) = candidate else {
            self.measure_floor(&mut figures).await;
            return (figures, None);
        };
        let mut arena = match self.open(candidate).await {
            Ok(arena) => arena,
            Err(error) => {
                figures.fail(Figure::Handover, &error);
                return (figures, None);
            }
        };
        figures.version = Some(arena.candidate.version.clone());
        if !name.hands_over_slowly() {
            self.measure_handovers(&mut arena, &mut figures).await;
        }
        self.measure_restarts(&mut arena, &mut figures).await;
        if name.peer().is_some() {
            return (figures, Some(arena));
        }
        self.measure_waits(&mut arena, &mut figures).await;
        self.measure_stops_without_answer(&mut arena, &mut figures)
            .await;
        self.measure_first_reconcile(&mut arena, &mut figures).await;
        (figures, None)
    }

    async fn open(&self, candidate: Result<Candidate>) -> Result<Arena<'_>> {
        let access = self.control_plane.access();
        Arena::open(candidate?, access, &self.client, &self.audit).await
    }

    /// What takes seconds each time: of the operator alone, of all peers at the same time.
    async fn measure_waits(&self, arena: &mut Arena<'_>, figures: &mut Figures) {
        if arena.candidate.name.hands_over_slowly() {
            self.measure_handovers(arena, figures).await;
        }
        self.measure_crashes(arena, figures).await;
        self.measure_starts(arena, figures).await;
        self.measure_idle(arena, figures).await;
    }

    async fn measure_floor(&self, figures: &mut Figures) {
        let access = self.control_plane.access();
        let rounds = self.options.rounds;
        let (mut handovers, mut releases) = (vec![], vec![]);
        self.figure(figures, Figure::Handover, rounds, async |step| {
            floor::handovers(access, rounds, step, &mut handovers, &mut releases).await
        })
        .await;
        figures.handover = Summary::of(&handovers);
        figures.release_visible = Summary::of(&releases);
    }

    async fn measure_handovers(&self, arena: &mut Arena<'_>, figures: &mut Figures) {
        let rounds = self.options.rounds_of(arena.candidate.name);
        let (mut handovers, mut releases) = (vec![], vec![]);
        self.figure(figures, Figure::Handover, rounds, async |step| {
            rounds::handovers(arena, rounds, step, &mut handovers, &mut releases).await
        })
        .await;
        figures.handover = Summary::of(&handovers);
        figures.release_visible = Summary::of(&releases);
    }

    async fn measure_stops_without_answer(&self, arena: &mut Arena<'_>, figures: &mut Figures) {
        let rounds = self.options.hang_rounds;
        let control_plane = self.control_plane;
        let mut stops = vec![];
        self.figure(figures, Figure::StopWithoutAnswer, rounds, async |step| {
            rounds::stops_without_answer(arena, control_plane, rounds, step, &mut stops).await
        })
        .await;
        figures.stop_without_answer = Summary::of(&stops);
    }

    async fn measure_crashes(&self, arena: &mut Arena<'_>, figures: &mut Figures) {
        let rounds = self.options.crashes_of(arena.candidate.name);
        let mut takeovers = vec![];
        self.figure(figures, Figure::Crash, rounds, async |step| {
            rounds::crashes(arena, rounds, step, &mut takeovers).await
        })
        .await;
        figures.crash = Summary::of(&takeovers);
    }

    async fn measure_starts(&self, arena: &mut Arena<'_>, figures: &mut Figures) {
        let rounds = self.options.start_rounds;
        let mut starts = Starts::default();
        self.figure(figures, Figure::Start, rounds, async |step| {
            rounds::starts(arena, rounds, step, &mut starts).await
        })
        .await;
        figures.start = Some(starts).filter(|starts| starts.rounds > 0);
    }

    async fn measure_restarts(&self, arena: &mut Arena<'_>, figures: &mut Figures) {
        let rounds = self.options.restart_rounds;
        let mut resumptions = vec![];
        self.figure(figures, Figure::Restart, rounds, async |step| {
            rounds::restarts(arena, rounds, step, &mut resumptions).await
        })
        .await;
        figures.restart = Summary::of(&resumptions);
    }

    async fn measure_idle(&self, arena: &mut Arena<'_>, figures: &mut Figures) {
        let seconds = self.options.idle_seconds;
        let mut idle = None;
        self.figure(
            figures,
            Figure::Idle,
            usize::from(seconds > 0),
            async |_| {
                idle = Some(rounds::idle(arena, Duration::from_secs(seconds)).await?);
                Ok(())
            },
        )
        .await;
        figures.idle = idle;
    }

    async fn measure_first_reconcile(&self, arena: &mut Arena<'_>, figures: &mut Figures) {
        let environments = self.options.environments;
        let mut durations = vec![];
        self.figure(
            figures,
            Figure::FirstReconcile,
            environments,
            async |step| {
                first_reconcile::first_reconciles(arena, environments, step, &mut durations).await
            },
        )
        .await;
        let summary = Summary::of(&durations);
        figures.first_reconcile = summary.map(|summary| FirstReconcile {
            environments,
            summary,
        });
    }

    /// Measures a figure unless it is wanted no times; a failure is kept beside the figures, and ends nothing else.
    async fn figure(
        &self,
        figures: &mut Figures,
        figure: Figure,
        times: usize,
        measure: impl AsyncFnOnce(&Step) -> Result<()>,
    ) {
        if times == 0 {
            return;
        }
        let step = self.progress.step(format!("{}: {figure}", figures.name));
        match measure(&step).await {
            Ok(()) => step.done(),
            Err(error) => figures.fail(figure, &error),
        }
    }
}
