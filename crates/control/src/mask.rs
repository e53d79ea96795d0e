//! What an agent says, without the secrets of its task and without any attempt's token.

use belay_agent::Agent;
use belay_api::port::Who;
use belay_api::{ATTEMPT_TOKEN, Secrets, each_text};
use belay_store::Store;
use serde_json::Value;

use crate::Control;
use crate::look::Look;
use crate::refuse::Outcome;

/// What is masked in what an attempt's agent says.
pub(crate) struct Mask(Secrets);

impl Mask {
    /// A JSON document, masked. One with escapes is read first: a secret may be spelt in several
    /// ways.
    pub(crate) fn json(&self, json: &str) -> String {
        match serde_json::from_str::<Value>(json) {
            Ok(mut value) if json.contains('\\') => {
                each_text(&mut value, &|text| self.text(text));
                value.to_string()
            }
            Ok(_) | Err(_) => self.text(json),
        }
    }

    /// A text, masked; so is whatever looks like an attempt's token.
    pub(crate) fn text(&self, text: &str) -> String {
        let text = self.0.text(&text.replace('\0', " "));
        let mut masked = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(ATTEMPT_TOKEN) {
            masked.push_str(&rest[..at]);
            let part_of_token = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = rest[at..].find(|c| !part_of_token(c)).map_or(rest.len(), |end| at + end);
            masked.push_str(&"*".repeat(end - at));
            rest = &rest[end..];
        }
        masked + rest
    }
}

impl<S: Store> Control<S> {
    /// What is masked in what this attempt's agent says.
    pub(crate) async fn mask_of(&self, who: Who) -> Outcome<Mask> {
        let look = self.look_at(who.task, Some(who.attempt)).await?;
        self.mask_in(&look)
    }

    /// The same, of an attempt that was looked at.
    pub(crate) fn mask_in(&self, look: &Look) -> Outcome<Mask> {
        let name = look.spec.agent.as_deref().unwrap_or(&self.settings().agent);
        let agent = name.parse::<Agent>().unwrap_or(Agent::Command);
        let role = self.settings().role(look.task.row.role.as_str());
        let variables = self.environment(look, name, &role.environment)?;
        let secret = variables.iter().filter(|(name, _)| agent.is_secret(name));
        Ok(Mask(Secrets::new(secret.map(|(_, value)| value.as_str()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_tokens_are_masked() {
        let mask = Mask(Secrets::new(["sk-secret-1"]));
        let token = format!("{ATTEMPT_TOKEN}abc_1_00ff");
        let text = format!("key sk-secret-1, token {token}, and {ATTEMPT_TOKEN}");
        let masked = mask.text(&text);
        assert!(!masked.contains("secret") && !masked.contains("belay_attempt"), "{masked}");
        assert!(masked.starts_with("key ***********, token *"), "{masked}");
        assert_eq!(masked.len(), text.len());
        assert_eq!(mask.text("nothing to hide"), "nothing to hide");
    }

    #[test]
    fn secrets_are_masked_however_json_spells_them() {
        let mask = Mask(Secrets::new(["say \"open\" now", "sk-secret-1"]));
        let json = r#"{"sk-secret-1":"x \u0073k-secret-1","a":["say \"open\" now",1]}"#;
        assert_eq!(mask.json(json), r#"{"***********":"x ***********","a":["**************",1]}"#);
        assert_eq!(mask.json(r#"{"b":"sk-secret-1"}"#), r#"{"b":"***********"}"#);
        assert_eq!(mask.json("sk-secret-1 is no JSON"), "*********** is no JSON");
    }
}
