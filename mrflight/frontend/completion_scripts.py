"""Writes the scripts with which bash, zsh and fish complete the command.

A script finds the command by its words before the cursor, and offers what may follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mrflight.frontend.completion_words import CommandWords, Words

_BASH = """\
# Completes mrflight in bash: source it, or save it where bash-completion looks for `mrflight`.
_mrflight() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" command= word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$command $word" in
            COMMANDS) command="${command:+$command }$word" ;;
        esac
    done
    COMPREPLY=()
    case "$command $previous" in
        *" =") return ;;
VALUES
    esac
    case "$command $current" in
OPTIONS
    esac
    case "$command" in
ARGUMENTS
    esac
}
_mrflight_add() { mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY; }
_mrflight_words() { _mrflight_add < <(compgen -W "$1" -- "$2"); }
_mrflight_settings() { compopt -o nospace; _mrflight_words "$@"; }
_mrflight_files() { compopt -o filenames; _mrflight_add < <(compgen -f -- "$1"); }
_mrflight_folders() { compopt -o filenames; _mrflight_add < <(compgen -d -- "$1"); }
_mrflight_jobs() {
    compopt -o filenames
    _mrflight_add < <(compgen -d -- "$1"; compgen -f -X '!*.toml' -- "$1")
}
complete -F _mrflight mrflight
"""

_BASH_VALUES = {
    "text": ":",
    "choice": '_mrflight_words "{values}" "$current"',
    "setting": '_mrflight_settings "{values}" "$current"',
    "job": '_mrflight_jobs "$current"',
    "file": '_mrflight_files "$current"',
    "folder": '_mrflight_folders "$current"',
}


def bash(commands: Sequence[CommandWords]) -> str:
    """Return the script for bash."""
    values, options, arguments = [], [], []
    for each in commands:
        for option in each.options:
            if option.kind != "nothing":
                flags = "|".join(f'"{each.name} {flag}"' for flag in option.flags)
                values.append(f"        {flags}) {_bash_values(option)}; return ;;")
        flags = " ".join(flag for option in each.options for flag in option.flags)
        options.append(f'        "{each.name} "-*) _mrflight_words "{flags}" "$current"; return ;;')
        offered = [_bash_values(argument) for argument in each.arguments]
        if each.subcommands:
            names = " ".join(name for name, _ in each.subcommands)
            offered.insert(0, f'_mrflight_words "{names}" "$current"')
        arguments += [f'        "{each.name}") {"; ".join(offered)} ;;'] if offered else []
    patterns = "|".join(f'"{each.last_step}"' for each in commands if each.command)
    return (
        _BASH.replace("COMMANDS", patterns)
        .replace("VALUES", "\n".join(values))
        .replace("OPTIONS", "\n".join(options))
        .replace("ARGUMENTS", "\n".join(arguments))
    )


def _bash_values(words: Words) -> str:
    return _BASH_VALUES[words.kind].format(values=" ".join(words.values))


_ZSH = """\
#compdef mrflight
# Completes mrflight in zsh: source it, or save it as `_mrflight` in a folder of $fpath.
_mrflight() {
    local command= word
    local -i number=1 at=1
    for word in "${(@)words[2,CURRENT-1]}"; do
        number+=1
        case "$command $word" in
            (COMMANDS) command="${command:+$command }$word"; at=$number ;;
        esac
    done
    words=(mrflight "${(@)words[at+1,-1]}")
    CURRENT=$((CURRENT - at + 1))
    case "$command" in
BRANCHES
    esac
}
if [ "$funcstack[1]" = _mrflight ]; then _mrflight "$@"; else compdef _mrflight mrflight; fi
"""

_ZSH_VALUES = {
    "text": " ",
    "choice": "({values})",
    "setting": '{{compadd -S "" -- {values}}}',
    "job": '_files -g "*.toml"',
    "file": "_files",
    "folder": "_files -/",
}


def zsh(commands: Sequence[CommandWords]) -> str:
    """Return the script for zsh."""
    branches = []
    for each in commands:
        specs = [spec for option in each.options for spec in _zsh_option(option)]
        specs += [
            f"'{number}:{_zsh_text(argument.summary)}:{_zsh_argument(argument, each)}'"
            for number, argument in enumerate(each.arguments, 1)
        ]
        if each.subcommands and not each.arguments:
            named = " ".join(f"{name}\\:{_zsh_word(text)}" for name, text in each.subcommands)
            specs.append(f"'1:command:(({named}))'")
        lines = " \\\n            ".join(["_arguments", *specs])
        branches.append(f'        ("{each.name}") {lines} ;;')
    patterns = "|".join(f'"{each.last_step}"' for each in commands if each.command)
    return _ZSH.replace("COMMANDS", patterns).replace("BRANCHES", "\n".join(branches))


def _zsh_option(option: Words) -> Iterator[str]:
    value = "" if option.kind == "nothing" else f":value:{_zsh_values(option)}"
    repeated = "*" if option.kind == "setting" else ""
    for flag in option.flags:
        assign = "=" if value and flag.startswith("--") else ""
        yield f"'{repeated}{flag}{assign}[{_zsh_text(option.summary)}]{value}'"


def _zsh_values(words: Words) -> str:
    return _ZSH_VALUES[words.kind].format(values=" ".join(words.values))


def _zsh_argument(argument: Words, command: CommandWords) -> str:
    """Return what offers the values of an argument, and in place of the first one subcommands."""
    values = _zsh_values(argument)
    if not command.subcommands or argument is not command.arguments[0]:
        return values
    return f"{{compadd -- {' '.join(name for name, _ in command.subcommands)}; {values}}}"


def _zsh_text(text: str) -> str:
    for sign in "\\[]:":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("'", "'\\''")


def _zsh_word(text: str) -> str:
    """Return a text as one word of a list of alternatives."""
    return _zsh_text(text).replace(" ", "\\ ").replace("(", "\\(").replace(")", "\\)")


_FISH = """\
# Completes mrflight in fish: save it as ~/.config/fish/completions/mrflight.fish.
function __mrflight_command_is
    set -l command
    for word in (commandline -opc)[2..]
        switch "$command $word"
            case COMMANDS
                set command (string trim -- "$command $word")
        end
    end
    test "$command" = "$argv[1]"
end
complete -c mrflight -f
"""

_FISH_VALUES = {
    "text": " -x",
    "choice": " -x -a '{values}'",
    "setting": " -x -a '{values}'",
    "job": " -x -a '(__fish_complete_suffix .toml)'",
    "file": " -r -F",
    "folder": " -x -a '(__fish_complete_directories)'",
}


def fish(commands: Sequence[CommandWords]) -> str:
    """Return the script for fish."""
    lines = []
    for each in commands:
        start = f"complete -c mrflight -n \"__mrflight_command_is '{each.name}'\""
        for name, summary in each.subcommands:
            lines.append(f"{start} -a {name} -d {_fish_text(summary)}")
        for argument in each.arguments:
            values = _FISH_VALUES[argument.kind].format(values=" ".join(argument.values))
            lines.append(f"{start}{values.removeprefix(' -x').removeprefix(' -r')}")
        for option in each.options:
            value = _FISH_VALUES.get(option.kind, "").format(values=" ".join(option.values))
            lines.append(f"{start}{_fish_flags(option)}{value} -d {_fish_text(option.summary)}")
    patterns = " ".join(f"'{each.last_step}'" for each in commands if each.command)
    return _FISH.replace("COMMANDS", patterns) + "\n".join(lines) + "\n"


def _fish_flags(option: Words) -> str:
    return "".join(
        f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in option.flags
    )


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
"""What writes the script, by the name of the shell."""
