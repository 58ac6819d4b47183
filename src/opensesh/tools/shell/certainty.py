"""Doubts about a parsed command: what it may do that its words do not show.

A command is certain if its name is literal and it is a program, which gets its words and can do nothing to the shell,
or a built-in command of the shell that is used in one of the ways listed here. Everything else is a doubt, and a line
with a doubt is asked about as a whole. The tables of names are closed sets, from the manuals of the shells; the tests
compare them with the shells that are installed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from .lexer import ShellCommand, ShellLanguage, Word

_PROGRAM = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@%,:-]*|\[|:")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"[0-9]*")
_EVALUATED = re.compile(r"[\[`]|\$\(")
_IN_DOUBLE_QUOTES = re.compile(r'"[^"\\`]*"')

_SHELL_VARIABLES = frozenset(
    """
    _ ARGC BAUD CDPATH COLUMNS CPUTYPE DIRSTACK EDITOR EGID ENV EPOCHREALTIME EPOCHSECONDS ERRNO EUID EXECIGNORE
    FCEDIT FIGNORE FPATH FUNCNAME FUNCNEST GID GLOBIGNORE GROUPS HISTCHARS HISTCMD HISTCONTROL HISTEDIT HISTFILE
    HISTFILESIZE HISTIGNORE HISTSIZE HISTTIMEFORMAT HOME HOST HOSTFILE HOSTNAME HOSTTYPE IFS IGNOREEOF INPUTRC
    INSIDE_EMACS JOBMAX KEYBOARD_HACK KEYTIMEOUT LANG LINENO LINES LISTMAX LOGCHECK LOGNAME MACHTYPE MAIL MAILCHECK
    MAILPATH MANPATH MAPFILE MATCH MBEGIN MEND MODULE_PATH NULLCMD OLDPWD OPTARG OPTERR OPTIND OSTYPE PAGER PATH
    PIPESTATUS POSIXLY_CORRECT POSTEDIT PPID PROMPT PROMPT2 PROMPT3 PROMPT4 PROMPT_COMMAND PROMPT_DIRTRIM PSVAR PWD
    RANDOM READNULLCMD REPLY REPORTTIME RPROMPT RPS1 RPS2 SAVEHIST SECONDS SHELL SHELLOPTS SHLVL SPROMPT SRANDOM
    STTY TERM TERMCAP TERMINFO TEXTDOMAIN TEXTDOMAINDIR TIMEFMT TIMEFORMAT TMOUT TMPDIR TMPPREFIX TMPSUFFIX
    TRY_BLOCK_ERROR TRY_BLOCK_INTERRUPT TTY TTYIDLE UID USERNAME VENDOR VISUAL WATCH WATCHFMT WORDCHARS ZDOTDIR
    aliases argv auto_resume builtins cdpath commands dirstack dis_aliases dis_builtins dis_functions
    dis_functions_source dis_galiases dis_patchars dis_reswords dis_saliases errnos fignore fpath funcfiletrace
    funcsourcetrace funcstack functions functions_source functrace galiases histchars history historywords jobdirs
    jobstates jobtexts keymaps langinfo mailpath manpath mapfile match mbegin mend module_path modules nameddirs
    options parameters patchars path pipestatus prompt psvar reply reswords saliases signals status sysparams
    termcap terminfo userdirs usergroups watch widgets zsh_eval_context zsh_scheduled_events
    """.split()
)
"""Variables with a meaning for some shell: assigning them may evaluate the value or change what commands do."""
_SHELL_PREFIXES = re.compile(r"(?:BASH|COMP|KSH|LC_|PS[0-9]|READLINE|ZLE|ZSH|sh_)")

_INFLUENTIAL = re.compile(
    r"(?:LD_|DYLD_|GIT_|GCONV_|LC_|NIX_|XDG_|PYTHON|PERL|RUBY|NODE|JAVA|JDK_|_JAVA|LUA|GO|RUST|CARGO|NPM_|npm_|LESS|MAN"
    r"|SSH|GPG|CURL|HTTP|http|ALL_PROXY|all_proxy|TAR|GZIP|ZIP|MAKE|MFLAGS|CC|CXX|AR$|CFLAGS|MALLOC|GLIBC|RSYNC|DOCKER"
    r"|KUBE|AWS_|PIP_|UV_|POETRY|BUNDLE|GEM_|PHP|PSQL|PG|SUDO|SYSTEMD|DBUS|DISPLAY|WAYLAND|BROWSER|TERM|OPENSSL|SSL_"
    r"|OPENSESH|OPENCODE|RIPGREP|TE?MP$)"
)
"""Beginnings of the names of variables that decide what programs do, or which ones they start."""

_HARMLESS_VARIABLES = frozenset(
    """
    CARGO_TERM_COLOR CI COLUMNS GOARCH GOOS LANG LC_ALL NODE_ENV PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED
    RUST_BACKTRACE RUST_LOG TZ
    """.split()
)
"""Exceptions: they choose a level of detail, a language or a target, and start no program."""

BUILTINS = frozenset(
    """
    - . : [ alias autoload bg bind bindkey break builtin bye caller cd chdir command compadd comparguments compcall
    compctl compdescribe compfiles compgen compgroups complete compopt compound compquote compset comptags comptry
    compvalues continue coproc declare dirs disable disown echo echotc echoti emulate enable end enum eval exec exit
    export false fc fg float foreach function functions getln getopts hash help hist history integer jobs kill let
    limit local log logout mapfile nameref namespace nocorrect noglob popd print printf private pushd pushln pwd r
    read readarray readonly redirect rehash repeat return sched select set setopt shift shopt source stop suspend
    test times trap true ttyctl type typeset ulimit umask unalias unfunction unhash unlimit unset unsetopt vared
    wait whence where zcompile zformat zle zmodload zparseopts zregexparse zstyle
    """.split()
)
"""Built-in commands and reserved words of bash, dash, ksh and zsh that are not programs in all of them."""

SHELL_CHANGING = frozenset("exec export read set umask".split())
"""Those that a certain line may contain and that change the shell for the commands behind them."""

_UNARY = frozenset("-z -n -f -d -e -r -w -x -s -L -h".split())
_BINARY = frozenset(("=", "==", "!="))
_REDIRECTIONS = (">", ">>", ">|", "<", "<<", "<<-", "<<<", "<>", "<&", ">&", "&>", "&>>")
_COUNTING = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))


def line_doubts(commands: Sequence[ShellCommand], shell: ShellLanguage, environment: Collection[str]) -> Iterator[str]:
    """Yield the doubts about the commands of a line. ``environment`` are the names of the variables that are set."""
    checked: tuple[Word, ...] = ()
    for command in commands:
        loops, checked = () if command.loops is checked else command.loops, command.loops
        for word in (*loops, *(() if command.words else command.assignments)):
            yield from _assignment_doubts(word, shell, environment)
        for redirect in command.redirects:
            if redirect.operator not in _REDIRECTIONS:
                yield "an unknown redirection"
        if command.words:
            yield from _command_doubts(command, shell)
        elif command.redirects and shell == "zsh":
            yield "a redirection without a command, for which zsh runs one"


def _assignment_doubts(word: Word, shell: ShellLanguage, environment: Collection[str]) -> Iterator[str]:
    """Yield doubts about an assignment that lasts: only a new variable is seen by nothing but this line."""
    match = _ASSIGNMENT.fullmatch(word.value)
    if not match:
        yield "an assignment to something other than a variable"
        return
    name, value = match.groups()
    # What decides about programs may be in the environment by then: from a start-up file, or to keep git in check.
    is_new = name not in environment and is_private_variable(name) and is_harmless_variable(name)
    if not is_new or (shell == "zsh" and not name.islower()):
        yield f"an assignment of {name}, which is not a new variable"
    bare = word.bare.partition("=")[2]
    if _EVALUATED.search(bare) or "~" in value.removeprefix("~/") or (shell == "zsh" and value.startswith("=")):
        yield "a value that may be evaluated"


def is_private_variable(name: str) -> bool:
    """Return whether no shell gives this variable a meaning."""
    return name not in _SHELL_VARIABLES and not _SHELL_PREFIXES.match(name)


def is_harmless_variable(name: str) -> bool:
    """Return whether a variable, passed to a program, may be expected not to change which programs run."""
    if name in _HARMLESS_VARIABLES:
        return True
    return bool(_NAME.fullmatch(name)) and is_private_variable(name) and not _INFLUENTIAL.match(name)


def _command_doubts(command: ShellCommand, shell: ShellLanguage) -> Iterator[str]:
    name = command.words[0]
    if not name.static or not _PROGRAM.fullmatch(name.value):
        yield "a command whose name is not literal"
        return
    arguments = command.words[1:]
    reads = name.value == "read"
    for assignment in command.assignments:
        variable = assignment.value.partition("=")[0].rstrip("+")
        if reads and variable == "IFS" and assignment.static:
            continue
        if not is_harmless_variable(variable):
            yield f"{variable}, which may decide what the command does"
    if name.value in BUILTINS:
        check = _BUILTIN_CHECKS.get(name.value)
        if check is None or not check(arguments, shell):
            yield f"{name.value}, which may change or evaluate something in the shell"


def _anything(words: Sequence[Word], shell: ShellLanguage) -> bool:
    return True


def _plain_words(words: Sequence[Word], shell: ShellLanguage) -> bool:
    """Literal words in which nothing can be evaluated."""
    return all(word.literal and not _EVALUATED.search(word.value) for word in words)


def _number(words: Sequence[Word], shell: ShellLanguage) -> bool:
    return len(words) <= 1 and all(word.text == "$?" or _NUMBER.fullmatch(word.text) for word in words)


def _cd(words: Sequence[Word], shell: ShellLanguage) -> bool:
    """One directory; zsh replaces a part of the name if there are two, and counts its stack by numbers."""
    operands = [word for word in words if word.value not in ("--", "-P", "-L")]
    return len(operands) <= 1 and all(word.value == "-" or word.value[:1] not in ("-", "+") for word in operands)


def _set(words: Sequence[Word], shell: ShellLanguage) -> bool:
    """Options about errors. Others export every variable, or change how words are read."""
    text = " ".join(word.text for word in words)
    return re.fullmatch(r"(?:[-+][eux]+|[-+][eux]*o (?:pipefail|errexit|nounset))(?: -o pipefail)?", text) is not None


def _export(words: Sequence[Word], shell: ShellLanguage) -> bool:
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.value)
        name = match[1] if match else word.value
        # A POSIX shell splits the value into words, and each may be another assignment.
        is_one_word = shell == "bash" or word.literal
        if not is_harmless_variable(name) or _EVALUATED.search(word.bare) or not is_one_word:
            return False
    return shell in ("bash", "posix")


def _read(words: Sequence[Word], shell: ShellLanguage) -> bool:
    names = [word.value for word in words if word.text not in ("-r", "-d", "''")]
    return all(_NAME.fullmatch(name) and is_private_variable(name) and name.islower() for name in names)


def _printf(words: Sequence[Word], shell: ShellLanguage) -> bool:
    """A literal format; for shells that evaluate numbers, without a number in it. ``%n`` sets a variable in bash."""
    if not words or not words[0].literal or words[0].value.startswith("-"):
        return False
    allowed = r"%%|%[-+ #0]*[0-9]*(?:\.[0-9]+)?[bcdiosqufxX]" if shell == "bash" else r"%[s%]"
    return "%" not in re.sub(allowed, "", words[0].value)


def _test(words: Sequence[Word], shell: ShellLanguage) -> bool:
    """A test of one to three words with a literal operator: a word that an expansion makes of several could be another
    operator, which evaluates its operand."""
    if words and words[0].text == "!":
        words = words[1:]
    if not all(word.literal or _IN_DOUBLE_QUOTES.fullmatch(word.text) for word in words):
        return False
    match [word.text for word in words]:
        case [_]:
            return True
        case [operator, _]:
            return operator in _UNARY
        case [left, operator, right]:
            if operator in _COUNTING:  # zsh and ksh evaluate the operands
                return shell == "bash" or all(_NUMBER.fullmatch(text.strip('"')) for text in (left, right))
            return operator in _BINARY
        case _:
            return False


def _bracket(words: Sequence[Word], shell: ShellLanguage) -> bool:
    return bool(words) and words[-1].text == "]" and _test(words[:-1], shell)


_BUILTIN_CHECKS: dict[str, Callable[[Sequence[Word], ShellLanguage], bool]] = {
    ":": _plain_words,
    "[": _bracket,
    "break": _number,
    "cd": _cd,
    "command": lambda words, shell: bool(words) and (words[0].text not in ("-v", "-V") or _plain_words(words, shell)),
    "continue": _number,
    "echo": _anything,
    "exec": _anything,
    "exit": _number,
    "export": _export,
    "false": _anything,
    "jobs": lambda words, shell: all(word.text in ("-l", "-n", "-p", "-r", "-s") for word in words),  # -x runs one
    "kill": _plain_words,
    "popd": lambda words, shell: not words,
    "printf": _printf,
    "pushd": lambda words, shell: len(words) == 1 and _cd(words, shell),
    "pwd": _plain_words,
    "read": _read,
    "return": _number,
    "set": _set,
    "shift": _number,
    "test": _test,
    "true": _anything,
    "type": _plain_words,
    "umask": _number,
    "wait": lambda words, shell: all(word.text == "$!" or _NUMBER.fullmatch(word.text) for word in words),
}
"""The built-in commands that a certain line may contain, and how."""
