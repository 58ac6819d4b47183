from __future__ import annotations

import pytest

from opensesh.tools.shell.read_only import is_read_only

READS = r"""
ls -la
cat a.py | head -20
grep -rn "foo" src && wc -l src/*.py
find . -name '*.py' -newer a | xargs grep -l foo
git log --oneline -5
git --no-pager -C sub diff HEAD~1 -- a.py
git status; git branch -a; git stash list; git remote -v
git config --get user.name
rg -n --glob '*.py' foo
sed -n 10,20p a.py
sort a | uniq -c | sort -rn
for f in *.py; do cat "$f"; done
if test -f a; then cat a; else echo none >&2; fi
ls nowhere 2>/dev/null || true
cat a 2>&1 >/dev/null
cat <<'EOF'
/bin/ls /usr/bin
command -v python3
date -u +%s
timeout 5 cat a
uniq -c -
ls | xargs -0 -n 1 grep --count foo
printf '%s\n' a
tree -L 2
(cd src && ls)
echo "$(cat a)"
diff <(sort a) <(sort b)
"""

MAY_WRITE = r"""
echo x > a
echo x >> a
echo x >| a
echo x &> a
: > a
cat a > b
tee a
echo x | tee -a a
sed -i s/a/b/ f
sed -n 'w out' f
sed -n '1e rm f' f
sed 's/x/y/w out' f
python3 -c 'open("a","w")'
node -e 1
perl -pi -e s/a/b/ f
awk '{print > "out"}' f
git apply p.diff
git commit -m x
git checkout .
git diff --output=a
git diff --outpu=a
git log --output a
git -c core.pager='sh -c x' log
git grep -Orm foo
git grep --open-files-in-pager=rm foo
git log --ext-diff -p
git branch new
git branch -D old
git tag v1
git stash
git remote add x y
git config user.name x
git config --global --unset x
git submodule update
git worktree add x
find . -delete
find . -exec rm {} +
find . -fprint out
find . -name x -ok rm {} \;
xargs rm
xargs -I{} sh -c '{}'
ls | xargs find -delete
timeout 5 rm a
sort -o a b
sort -uo a b
sort --output=a b
sort --compress-program=x a
uniq a b
uniq - a
[[ 'a[$(rm b)]' -eq 0 ]]
test -v 'a[$(rm b)]'
uniq -- -a b
xargs -i rm cat
xargs -l rm cat
xargs -0I cat rm cat
xargs --process-slot-var cat rm a
xargs --process-s cat rm a
tree -o out
fd -x rm
fd -Hx rm
rg --pre ./evil x
date -s tomorrow
date 010100002030
hostname x
/usr/bin/time -o a ls
\time --output=a ls
env X=1 rm a
env rm a
rm a
mv a b
cp a b
touch a
mkdir d
ln -s a b
chmod +x a
truncate -s0 a
dd if=a of=b
install a b
curl -o a http://x
wget http://x
npm install
make
./ls
../bin/cat a
src/cat a
X=1 ls
PATH=.:$PATH ls
export PATH=.; ls
for PATH in .; do ls; done
printf -v PATH .; ls
: ${PATH:=.}
echo ${x:=y}
eval "rm a"
bash -c 'ls'
sh script.sh
source a
. a
alias ls=rm
exec ls > a
$CMD a
`echo rm` a
l\s > a
echo $(rm a)
cat <(rm a)
echo "$(echo x > a)"
ls() { rm a; }; ls
trap 'rm a' EXIT
coproc rm a
vim a
less a
man ls
read x < a
cat a >&b
echo x 1<>a
ls; rm a
ls && rm a || ls
ls & rm a
git diff $X
find . $X
echo 'unfinished
"""


def lines(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if line]


@pytest.mark.parametrize("line", lines(READS))
def test_what_only_reads_is_known_to(line: str) -> None:
    text = f"{line}\nwords\nEOF" if line.endswith("'EOF'") else line
    assert is_read_only(text)


@pytest.mark.parametrize("line", [*lines(MAY_WRITE), "cat <<EOF\n$(rm a)\nEOF", "cat <<EOF > a\nx\nEOF", "\0"])
def test_a_command_that_may_write_is_not_read_only(line: str) -> None:
    assert not is_read_only(line)
