//! Transcripts against what the agents printed.

use std::time::Duration;

use belay_control::Control;
use belay_store::Memory;
use belay_store::rows::AttemptRow;

use super::{Oracle, short};

impl Oracle {
    /// Every transcript that was sealed since the last look is whole, and none is longer than what
    /// was printed.
    pub(super) async fn check_transcripts(&self, observer: &Control<Memory>) {
        for row in self.attempts().iter() {
            let key = (row.task, row.attempt.number);
            let name = format!("{} #{}", short(row.task), row.attempt.number);
            let printed = self.printed_length(key);
            if row.transcript_missing.0.is_empty() && row.transcript_length > printed {
                let length = row.transcript_length;
                self.sim.violate(5, format!("{name} printed {printed} bytes, {length} are stored"));
            }
            if row.transcript_hash.is_some() && self.ledger().sealed.insert(key) {
                self.check_sealed(observer, row, &name).await;
            }
        }
    }

    /// Whether the machine of an attempt, or its sandbox, is gone, and unread output with it.
    fn is_gone(&self, key: super::Name) -> bool {
        self.machines().iter().any(|machine| {
            let inside = machine.inside();
            let was_here = inside.printed.contains_key(&key) || inside.executed.contains_key(&key);
            inside.vanished.contains(&key) || (machine.is_lost() && was_here)
        })
    }

    async fn check_sealed(&self, observer: &Control<Memory>, row: &AttemptRow, name: &str) {
        let key = (row.task, row.attempt.number);
        let mut printed = self.printed(key);
        let mut length = row.transcript_length;
        if let Some(first) = row.transcript_missing.0.first() {
            // Who was never executed has printed nothing that could be missed. What is on a machine
            // whose runner was away for too long may be there, and is not waited for.
            let given_up = self.ledger().agree.given_up.contains(&key);
            if !printed.is_empty() && !self.is_gone(key) && !given_up {
                return self.sim.violate(5, format!("{name} misses {first}, and it is here"));
            }
            // Nothing is said of what follows; what is there is what was printed.
            let from = first.split('-').next().and_then(|from| from.parse().ok());
            length = from.unwrap_or(0);
            printed.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        }
        let mut stored = Vec::new();
        while (stored.len() as u64) < length {
            let from = stored.len() as u64;
            let number = Some(key.1.0);
            match observer.transcript(key.0, number, from, Duration::ZERO).await {
                Ok(piece) if !piece.bytes.is_empty() && piece.from == from => {
                    stored.extend_from_slice(&piece.bytes);
                }
                Ok(_) | Err(_) => {
                    return self.sim.violate(5, format!("{name} cannot be read from {from} on"));
                }
            }
        }
        if stored != printed {
            let same = stored.iter().zip(&printed).take_while(|(a, b)| a == b).count();
            let (have, had) = (stored.len(), printed.len());
            self.sim.violate(
                5,
                format!(
                    "{name} printed {had} bytes; {have} are stored, and they differ from {same} on"
                ),
            );
        }
    }
}
