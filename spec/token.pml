/* Lease rule 5: the token is drawn in a statement after the one that locked the row.
 *
 * N transactions each want a grant of one name, from a store whose tokens come from one sequence: a
 * draw is never rolled back, but survives a crash only if a commit came after it. Rows are pruned,
 * transactions abort, the server crashes; with RESTORE an older copy comes back, as another incarnation.
 * README.md says what each variant (macro) is; the property, at the end, is the same text for all.
 */
#ifndef N
#define N 3
#endif
#define LIMIT (2 * N)            /* draws: bounds how often a transaction can abort and begin again */
#define NIL 255

/* ---- the store ---- */
byte seq, durable;               /* the sequence: last value drawn; the value that a crash leaves */
bit row;                         /* the name has a row, */
byte tok;                        /*   with its token, 0 before the first grant, */
byte lock = NIL;                 /*   locked by this transaction, */
bit fresh;                       /*   which is also the one that inserted it and has not committed */
byte prunes;                     /* counts the rows that were deleted */
bit crashed;
byte boot;                       /* counts crashes: transactions opened before the last one are gone */

/* ---- history that the property looks at; no step decides by it ---- */
byte high;                       /* highest token told */
bit fell;

#ifdef REACH
bit waited, vanished, lost, guarded, jumped;
#define SEEN(x) x = 1
#else
#define SEEN(x) skip
#endif

#ifdef RESTORE
byte ms = 1;                     /* milliseconds since the origin; grants do not outrun it (a stated assumption) */
bit saved, restored, foreign;    /* a copy was made; it came back; its incarnation is not the present one */
byte old_seq, old_tok;
bit old_row;
#define ROOM (seq < ms)          /* and ms stays below LIMIT */
#else
#define ROOM (seq < LIMIT)
#endif

inline draw() {
  seq++; my = seq
}

/* A token is told after its commit, and the commit makes the draw durable. */
inline tell(t) {
  if :: t <= high -> fell = 1 :: else -> high = t fi
}

inline unlock() {
  if :: fresh -> fresh = 0; row = 0; tok = 0 :: else fi;
  lock = NIL
}

inline commit() {
#ifdef GUARD
  if
  :: my <= tok -> SEEN(guarded); seq = (seq > tok -> seq : tok); unlock()
  :: my > tok ->
#else
  if
  :: true ->
#endif
     tok = my; lock = NIL; fresh = 0; durable = seq;
#ifndef LEAKED
     tell(my);
#endif
     done = 1
  fi
}

proctype Grant(byte me) {
  byte my;
  byte b;
  bit done;
#if defined(EARLYDRAW) || defined(REACH)
  byte seen;
#endif
begin:
  atomic { b = boot; my = 0 };
  {
#if defined(RESTORE) && !defined(NOJUMP)
    /* the first grant under another incarnation jumps, in a transaction of its own, before anything else */
    if
    :: atomic { foreign -> foreign = 0; seq = (seq + 1 > ms -> seq + 1 : ms); durable = seq; SEEN(jumped) }
    :: !foreign
    fi;
#endif
#ifdef VALUESDRAW
    atomic { ROOM -> draw() };                       /* INSERT .. VALUES (nextval) ON CONFLICT DO UPDATE: */
    atomic {                                         /* drawn, then it waits */
      lock == NIL -> lock = me;
      if :: !row -> row = 1; fresh = 1 :: else fi
    };
#else
    atomic {                                         /* INSERT .. ON CONFLICT DO NOTHING, without a token */
      !fresh ->
      if :: !row -> row = 1; fresh = 1; lock = me :: else fi
    };
#if defined(EARLYDRAW)
    atomic { ROOM -> draw(); seen = prunes };        /* SELECT nextval, .. FOR UPDATE: drawn, then it waits */
#elif defined(REACH)
    atomic { seen = high };
#endif
    if
    :: lock == me
    :: atomic { lock == NIL && row -> lock = me;
#if defined(EARLYDRAW)
         if :: seen != prunes -> lock = NIL; goto begin :: else fi
#elif defined(REACH)
         if :: seen != high -> SEEN(waited) :: else fi
#endif
       }
    :: atomic { lock == NIL && !row -> SEEN(vanished); goto begin }
    fi;
#ifndef EARLYDRAW
    atomic { ROOM -> draw();                         /* UPDATE .. SET token = nextval, a later statement */
#ifdef LEAKED
      tell(my)
#endif
    };
#endif
#endif
    if
    :: atomic { commit() }
    :: atomic { unlock() }                           /* the transaction aborts; what it drew stays drawn */
    fi
  } unless { atomic { b != boot -> SEEN(lost) } };
  if :: !done -> goto begin :: done fi
}

inline restart() {
  unlock(); boot++
}

active proctype World() {
end:
  do
  :: atomic { lock == NIL && row && prunes < 2 -> row = 0; tok = 0; prunes++ }    /* only with the row's lock */
  :: atomic { !crashed -> crashed = 1; restart(); seq = durable }
#ifdef RESTORE
  :: atomic { ms < LIMIT -> ms++ }
  :: atomic { !saved -> saved = 1; old_seq = durable; old_row = (row && !fresh); old_tok = (old_row -> tok : 0) }
  :: atomic {
       saved && !restored -> restored = 1; restart(); foreign = 1;
       seq = old_seq; durable = old_seq; row = old_row; tok = old_tok
     }
#endif
  od
}

init {
  byte n;
  atomic { do :: n < N -> run Grant(n); n++ :: else -> break od; n = 0 }
}

/* ---- property ---- */

ltl rising { [] !fell }

#ifdef REACH
ltl reach_waited { [] !waited }
ltl reach_vanished { [] !vanished }
ltl reach_lost { [] !lost }
ltl reach_all { [] (high < N) }
#ifdef RESTORE
ltl reach_jumped { [] !jumped }
#endif
#ifdef GUARD
ltl reach_guarded { [] !guarded }
#endif
#endif
