#!/usr/bin/env bash
# Makes a corpus of the kept streams: each behind the three bytes that pick agent, pieces and exit.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p fuzz/corpus/reader
agents=(claude codex gemini opencode copilot cursor acp command)
for stream in tests/streams/*/*.stream tests/fixtures/*/*.stream; do
    agent=$(sed 's/.*"agent":"\([a-z]*\)".*/\1/' "${stream%.stream}.json")
    for index in "${!agents[@]}"; do
        if [ "${agents[$index]}" = "$agent" ]; then
            name=$(echo "$stream" | tr '/' '_')
            { printf '%b' "\\x0$index\\xff\\x00"; head -c 60000 "$stream"; } > "fuzz/corpus/reader/$name"
        fi
    done
done
