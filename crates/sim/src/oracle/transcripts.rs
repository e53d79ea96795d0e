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
        for row in self.attempts() {
            let key = (row.task, row.attempt.number);
            let name = format!("{} #{}", short(row.task), row.attempt.number);
            let Some(machine) = self.machine.get() else { return };
            let printed = machine.inside().printed.get(&key).map_or(0, Vec::len) as u64;
            if row.transcript_length > printed {
                let length = row.transcript_length;
                self.sim.violate(5, format!("{name} printed {printed} bytes, {length} are stored"));
            }
            if row.transcript_hash.is_some() && self.ledger().sealed.insert(key) {
                self.check_sealed(observer, &row, &name).await;
            }
        }
    }

    async fn check_sealed(&self, observer: &Control<Memory>, row: &AttemptRow, name: &str) {
        let Some(machine) = self.machine.get() else { return };
        let key = (row.task, row.attempt.number);
        let printed = machine.inside().printed.get(&key).cloned().unwrap_or_default();
        if !row.transcript_missing.0.is_empty() {
            let missing = row.transcript_missing.0.join(", ");
            return self
                .sim
                .violate(5, format!("{name} misses {missing}, and its machine is here"));
        }
        let mut stored = Vec::new();
        while (stored.len() as u64) < row.transcript_length {
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
