#!/usr/bin/env bash
# Proves every row of models.txt with spin, and requires the broken twins to fail.
#
#   spec/check.sh                           all rows; the last line is the verdict, exit 1 unless all are as expected
#   spec/check.sh show MODEL VARIANT PROP   the shortest history that breaks PROP; VARIANT as in models.txt
#
# Properties named ends_... say that something comes at last: they are searched for cycles, with weak fairness.
# Builds in a temporary directory, from any working directory. Needs spin and gcc.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
table=${SPEC_TABLE:-$here/models.txt}
depth=1000000  # steps; a deeper history makes the row incomplete, which is a failure
small="operation hold outbox" # models whose searches take less time than optimising them would
memory_mb=2000 # for one search; reaching it makes the row incomplete, which is a failure

die() { echo "spec: $*" >&2; exit 1; }

need_tools() {
  local tool
  for tool in spin gcc; do
    command -v "$tool" >/dev/null || die "$tool is not installed; \`make services\` installs it."
  done
}

# rows: the table as "model<TAB>variant<TAB>property<TAB>expected", one row a line.
rows() {
  awk -F'|' '
    /^[ \t]*(#|$)/ { next }
    { for (i = 1; i <= 4; i++) { gsub(/^[ \t]+|[ \t]+$/, "", $i); gsub(/[ \t]+/, " ", $i) }
      print $1 "\t" $2 "\t" $3 "\t" $4 }' "$table"
}

# any PATTERN...: whether a line of the input matches. It reads on to the end: grep -q leaves early, and under pipefail
# its writer's SIGPIPE would be taken for "no".
any() { [ "$(grep -c "$@")" -gt 0 ]; }

# variants_of MODEL: the macros that change the model: tested in it, but given no value by it.
variants_of() {
  local tested given
  tested=$(grep -oE '(#ifn?def +|defined\()[A-Z]+' "$here/$1.pml" | grep -oE '[A-Z]+$' | sort -u)
  given=$(grep -oE '^#define +[A-Z]+' "$here/$1.pml" | grep -oE '[A-Z]+$' | sort -u)
  comm -23 <(echo "$tested") <(echo "$given")
}

# check_table: a slip in the table or the models would make a row prove nothing, so it is an error.
check_table() {
  local model variant property expected macro twice
  twice=$(rows | cut -f1-3 | sort | uniq -d)
  [ -z "$twice" ] || die "row twice in the table: $twice"
  while IFS=$'\t' read -r model variant property expected; do
    local row="$model | $variant | $property"
    [ -f "$here/$model.pml" ] || die "$row: there is no $model.pml"
    case $expected in holds | refuted) ;; *) die "$row: expected is \"$expected\", neither holds nor refuted" ;; esac
    grep -qE "^ltl $property " "$here/$model.pml" || die "$row: $model.pml has no property $property"
    [ "$variant" = - ] || for macro in $variant; do
      grep -qwE "(#ifn?def +|defined\()${macro%%=*}" "$here/$model.pml" || die "$row: $model.pml does not know ${macro%%=*}"
    done
    case $expected/$property in
    holds/* | refuted/reach_*) ;;
    *) rows | any -E "^$model	[^	]*	$property	holds\$" || die "$row: refuted, but no row says that it holds" ;;
    esac
  done < <(rows)
  for model in $(rows | cut -f1 | sort -u); do
    # The claim's assertion must be the only one that a search can find violated.
    ! grep -nE '(^|[^a-z_])assert *\(' "$here/$model.pml" || die "$model.pml: an assert of its own would hide which property failed"
    while read -r property; do
      rows | cut -f1,3 | any -x "$model	$property" || die "$model.pml: no row names the property $property"
    done < <(grep -oE '^ltl [a-z_]+' "$here/$model.pml" | cut -d' ' -f2)
    while read -r macro; do
      rows | awk -F'\t' -v m="$model" '$1 == m { print $2 }' | tr ' ' '\n' | any -E "^$macro(=|\$)" ||
        die "$model.pml: no row names the variant $macro"
    done < <(variants_of "$model")
  done
}

# flags VARIANT: the variant as options of the preprocessor.
flags() {
  # shellcheck disable=SC2086  # each macro is a word
  [ "$1" = - ] || printf -- '-D%s ' $1
}

# build MODEL VARIANT GCC-OPTION...: ./pan in the working directory; what failed is in ./build.log.
build() {
  local model=$1 variant=$2
  shift 2
  # shellcheck disable=SC2046  # each macro is a word
  spin -a $(flags "$variant") "$here/$model.pml" >build.log 2>&1 &&
    gcc -w -DMEMLIM=$memory_mb "$@" -o pan pan.c >>build.log 2>&1
}

# verdict PROPERTY: reads pan's report; prints "holds", "refuted" or what went wrong.
verdict() {
  local report wrong
  report=$(cat)
  wrong=$(grep -iE 'depth too small|not completed|MEMLIM|out of memory|VECTORSZ|bad array index|indexing|invalid end state' <<<"$report" |
    grep -v 'disabled by never claim' || true)
  if ! grep -qF "+ ($1)" <<<"$report" || ! grep -q '^Full statespace search' <<<"$report"; then
    echo "error: no full search of $1: $(grep -m1 -iE 'error|pan:' <<<"$report" || echo 'no report')"
  elif grep -qE '^pan:1: assertion violated  !\( !\(|^pan:1: acceptance cycle' <<<"$report"; then
    grep -qE 'errors: 1$' <<<"$report" && echo refuted || echo "error: more than one counterexample"
  elif [ -n "$wrong" ]; then
    echo "incomplete: $(head -1 <<<"$wrong")"
  elif grep -qE 'errors: 0$' <<<"$report"; then
    echo holds
  else
    echo "error: $(grep -m1 '^pan:' <<<"$report" || echo 'pan ended without a verdict')"
  fi
}

# fairness PROPERTIES: the option that builds a search for them; NFAIR=3 is enough for 14 processes.
fairness() {
  grep -q '^ends_' <<<"$1" && echo -DNFAIR=3 || echo -DNOFAIR
}

# options PROPERTY: what pan needs to look for its counterexamples.
options() {
  case $1 in ends_*) echo -a -f ;; *) echo -a ;; esac
}

# group WORK N: all rows of the Nth pair of model and variant; one result file a row.
group() {
  local work=$1 model variant property expected nr got states sign fair
  IFS=$'\t' read -r model variant < <(sed -n "$2p" "$work/groups")
  mkdir "$work/build.$2" && cd "$work/build.$2"
  # A counterexample is found early, so a variant that is only to be refuted is not worth optimising:
  # compiling takes most of the time.
  local built=yes optimise=-O0
  [[ " $small " = *" $model "* ]] || ! rows | any -E "^$model	$variant	[^	]*	holds\$" || optimise=-O1
  fair=$(fairness "$(rows | awk -F'\t' -v m="$model" -v v="$variant" '$1 == m && $2 == v { print $3 }')")
  build "$model" "$variant" "$fair" $optimise || built="error: $(grep -m1 -iE 'error' build.log || tail -1 build.log)"
  while IFS=$'\t' read -r nr property expected; do
    got=$built states=-
    if [ "$built" = yes ]; then
      # shellcheck disable=SC2046  # each option is a word
      ./pan $(options "$property") -w20 -m$depth -N "$property" >report 2>&1 || true
      got=$(verdict "$property" <report)
      states=$(awk '/states, stored/ { print $1; exit }' report)
    fi
    sign=ok
    [ "$got" = "$expected" ] || { sign=WRONG got="$got (expected $expected)"; }
    printf '%-6s %-7s %-24s %-16s %9s states  %s\n' "$sign" "$model" "$variant" "$property" "$states" "$got" >"$work/row.$nr"
  done < <(rows | awk -F'\t' -v m="$model" -v v="$variant" '$1 == m && $2 == v { print NR "\t" $3 "\t" $4 }')
}

all() {
  local work count good nr
  need_tools
  check_table
  work=$(mktemp -d)
  # shellcheck disable=SC2064  # the directory is known now
  trap "rm -rf '$work'" EXIT
  rows | cut -f1,2 | awk '!seen[$0]++' >"$work/groups"
  count=$(rows | wc -l | tr -d ' ')
  [ "$count" -gt 0 ] || die "the table is empty"
  seq "$(wc -l <"$work/groups")" |
    xargs -P "$(getconf _NPROCESSORS_ONLN)" -I{} "${BASH_SOURCE[0]}" group "$work" {}
  for nr in $(seq "$count"); do
    cat "$work/row.$nr" 2>/dev/null || echo "WRONG  row $nr: no result"
  done | tee "$work/results"
  good=$(grep -c '^ok ' "$work/results" || true)
  echo "spec: $good of $count as expected"
  [ "$good" = "$count" ]
}

show() {
  local model=$1 variant=$2 property=$3 work
  need_tools
  [ -f "$here/$model.pml" ] || die "there is no $model.pml"
  work=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  cd "$work"
  case $property in
  ends_*) # a cycle, which a search in breadth does not find: any, not the shortest
    build "$model" "$variant" "$(fairness "$property")" -O1 || die "$(tail -1 build.log)"
    # shellcheck disable=SC2046  # each option is a word
    ./pan $(options "$property") -m$depth -N "$property" >report 2>&1 || true
    ;;
  *)
    build "$model" "$variant" -DNOFAIR -O1 -DBFS || die "$(tail -1 build.log)"
    ./pan -N "$property" >report 2>&1 || true
    ;;
  esac
  [ -f "$model.pml.trail" ] || die "$property: no history breaks it: $(verdict "$property" <report)"
  # shellcheck disable=SC2046
  spin -t -p -g $(flags "$variant") -k "$model.pml.trail" "$here/$model.pml" | grep -vE '^(ltl|Never claim moves|Starting)|never|:init:'
}

case ${1:-all} in
all) all ;;
group) group "$2" "$3" ;;
show) [ $# -eq 4 ] || die "show MODEL VARIANT PROPERTY"; show "$2" "$3" "$4" ;;
*) die "unknown command $1; see the head of $0" ;;
esac
