"""How much of a command says what it does: ``git push origin main`` is a ``git push``, ``ls -la`` is an ``ls``.

Used for what "always" allows: the command, cut after the words that name it, with anything behind.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TWO_WORDS = """
    ansible apt apt-get asdf bazel black brew buf bun bundle cabal cargo cdk certbot choco circleci cmake code composer
    conan conda consul corepack crictl cypress dart deno dnf docker docker-compose doppler dotnet dvc earthly elixir
    eksctl expo fastlane firebase flatpak fly flyctl flutter fnm gem git go gradle gradlew ./gradlew grunt gulp hatch
    helm heroku hg hugo invoke ip jj jupyter just k3d kind kubectl lefthook lerna make mamba meson minikube mise mix
    mvn ./mvnw ng netlify nix nomad npm npx nuget nvm nx openssl opam pacman packer pdm perl php pip pip3 pipenv pipx
    pm2 pnpm podman poe poetry port pre-commit prisma psql pulumi pyenv python python3 rails rake rbenv react-native
    redis-cli ruff rush rustup rye sbt serverless snap sops spack stack supabase svn swift systemctl task terraform
    tofu tox trunk turbo uv vagrant vault vercel vite volta wasm-pack wp wrangler xcodebuild xcrun yarn yum zig zypper
    ruby node tsx ts-node
"""

_THREE_WORDS = (
    "aws *",
    "az *",
    "doctl *",
    "gcloud *",
    "gh *",
    "glab *",
    "heroku pg",
    "oci *",
    "sf *",
    "sfdx *",
    "bun pm",
    "bun run",
    "bun x",
    "cargo add",
    "cargo run",
    "composer run",
    "conda env",
    "deno task",
    "docker buildx",
    "docker compose",
    "docker container",
    "docker context",
    "docker image",
    "docker network",
    "docker system",
    "docker volume",
    "dotnet tool",
    "git bisect",
    "git config",
    "git remote",
    "git stash",
    "git submodule",
    "git worktree",
    "go mod",
    "go tool",
    "helm repo",
    "ip addr",
    "ip link",
    "ip route",
    "kubectl config",
    "kubectl create",
    "kubectl get",
    "kubectl delete",
    "kubectl rollout",
    "nix flake",
    "npm cache",
    "npm config",
    "npm exec",
    "npm run",
    "npm run-script",
    "pnpm dlx",
    "pnpm exec",
    "pnpm run",
    "podman compose",
    "podman container",
    "podman image",
    "poetry env",
    "poetry run",
    "pulumi stack",
    "rails db",
    "rustup component",
    "rustup target",
    "terraform state",
    "terraform workspace",
    "uv pip",
    "uv run",
    "uv tool",
    "yarn dlx",
    "yarn run",
    "yarn workspace",
)

ARITY = dict.fromkeys(_TWO_WORDS.split(), 2) | {name.removesuffix(" *"): 3 for name in _THREE_WORDS}
"""By the beginning of a command, how many words name it; one for all that is not here."""

_BEFORE_THE_NAME = {
    "cargo": "-C -Z --color --config",
    "docker": "-H -c -l --config --context --host --log-level",
    "gh": "-R --repo",
    "git": "-C -c --config-env --git-dir --namespace --work-tree",
    "go": "-C",
    "helm": "-n --kube-context --kubeconfig --namespace",
    "kubectl": "-n -s --cluster --context --kubeconfig --namespace --server --user",
    "make": "-C -I -f --directory --file --makefile",
    "npm": "-C -w --prefix --workspace",
    "pnpm": "-C -F --dir --filter",
    "poetry": "-C -P --directory --project",
    "uv": "--config-file --directory --project",
    "yarn": "--cwd",
}
"""By command, its flags that take the next word, of those that may stand before the word that says what it does."""


def prefix(words: Sequence[str]) -> tuple[str, ...]:
    """The words that name a command; the longest entry of the table decides."""
    for size in range(min(2, len(words)), 0, -1):
        count = ARITY.get(" ".join(words[:size]))
        if count is not None:
            return tuple(words[:count])
    return tuple(words[:1])


def after_flags(name: str, words: Sequence[str]) -> list[str]:
    """``words`` behind the command ``name`` without the flags before its subcommand; none if there are none."""
    plain = os.path.basename(name)
    if plain not in _BEFORE_THE_NAME:
        return []
    valued = _BEFORE_THE_NAME[plain].split()
    at = 0
    while at < len(words) and words[at][:1] in ("-", "+"):
        at += 2 if words[at] in valued else 1
    return list(words[at:]) if at else []
