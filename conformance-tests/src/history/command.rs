//! What a history is made of.

use super::chance::Chance;

/// A kind of act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A workflow is created.
    Create,
    /// A worker claims.
    Claim,
    /// Some attempts end, each in its own way.
    Finish,
    /// Everything that is held is extended.
    Heartbeat,
    /// Expired leases are taken back.
    Recover,
    /// Ops whose instant has come are woken.
    Wake,
    /// Workers say that their handlers begin.
    Dispatch,
    /// An operator cancels, retries, settles or adds.
    Operate,
    /// A queue gets another limit or rate.
    Limit,
    /// The clock moves.
    PassTime,
}

/// One act, with the number that its choices follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// What happens.
    pub act: Act,
    /// Which of its kind.
    pub seed: u64,
}

/// As often as they stand here.
const WEIGHED: [Act; 22] = [
    Act::Create,
    Act::Create,
    Act::Create,
    Act::Claim,
    Act::Claim,
    Act::Claim,
    Act::Claim,
    Act::Claim,
    Act::Finish,
    Act::Finish,
    Act::Finish,
    Act::Finish,
    Act::Heartbeat,
    Act::Recover,
    Act::Recover,
    Act::Operate,
    Act::Operate,
    Act::Limit,
    Act::PassTime,
    Act::PassTime,
    Act::Wake,
    Act::Dispatch,
];

impl Command {
    /// The command that two numbers mean.
    pub fn of(which: u64, seed: u64) -> Self {
        let at = usize::try_from(which % WEIGHED.len() as u64).unwrap_or(0);
        Self { act: WEIGHED.get(at).copied().unwrap_or(Act::PassTime), seed }
    }

    /// A history of `length` commands that a seed tells; without limits on queues unless they are asked for.
    pub fn history(seed: u64, length: usize, limited: bool) -> Vec<Self> {
        let mut chance = Chance(seed);
        let draw = || {
            let command = Self::of(chance.next(), chance.next());
            let act = if command.act == Act::Limit && !limited { Act::PassTime } else { command.act };
            Self { act, ..command }
        };
        std::iter::repeat_with(draw).take(length).collect()
    }
}
