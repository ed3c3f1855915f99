/* Enforcement at the resource: the high-water mark with Enter, and the strict check.
 *
 * N clients each make one read-modify-write of a resource under a lease that may end at any moment, and
 * begin again under a new lease, TRIES times in all. A client may be paused between any two steps and
 * asks nobody before it goes on: no clock of a client appears here, so nothing below rests on one. The
 * resource is a database at READ COMMITTED: one step is one statement, row locks are kept until the
 * commit, and nobody else sees what is not committed. README.md says what each variant (macro) is; the
 * properties, at the end, are the same text for all of them.
 */
#ifndef N
#define N 3
#endif
#ifndef TRIES
#define TRIES 2
#endif
#define NIL 255

/* ---- the authority ---- */
byte tok;                        /* the last token granted */
byte holder = NIL;               /* the client of the latest acquisition, NIL when released */
bit lapsed;                      /* expired, by the authority's clock */
byte shares;                     /* FOR SHARE locks on the lease row; a grant, a release updates that row */

/* ---- the resource ---- */
byte val;                        /* its content: one bit for each client whose update is in it */
byte mark;                       /* the highest token it has accepted */
byte lock = NIL;                 /* the client that holds the lock on the mark's row */

/* ---- history that the properties look at; no step decides by it ---- */
byte acked;                      /* the updates that were committed */
byte last;                       /* the token of the last one */
bit fell, foreign, barred;

#define OWNS(c) (holder == c && tok == my)

#ifdef REACH
bit stale;                       /* a write was attempted under a token no longer current, and refused */
#define SEEN(x) x = 1
#else
#define SEEN(x) skip
#endif

#ifdef RR                        /* REPEATABLE READ: the snapshot is that of the transaction's first statement */
bit moved[N];                    /* the mark's row was written since this client's snapshot */
#define SNAPSHOT(c) moved[c] = 0
#define MOVED(c) moved[c]
#if N == 2
#define MOVE(c) moved[1 - c] = 1
#else
#define MOVE(c) moved[(c + 1) % 3] = 1; moved[(c + 2) % 3] = 1
#endif
#else
#define SNAPSHOT(c) skip
#define MOVED(c) false
#define MOVE(c) skip
#endif

/* ---- the mark ---- */

#ifdef REFUSEEQUAL
#define TOOLOW (my <= mark)
#else
#define TOOLOW (my < mark)
#endif

/* Enter and Admit alike: lock the mark's row, refuse what is lower. The mark moves at the commit. */
inline at_mark(c) {
  lock == NIL ->
  if
  :: MOVED(c) -> go = 0                              /* 40001: nothing was told, begin again */
  :: !MOVED(c) && TOOLOW -> go = 0; if :: OWNS(c) && !lapsed -> barred = 1 :: else fi
  :: !MOVED(c) && !TOOLOW -> lock = c
  fi
}

/* The mark is written always, also when it is equal: a transaction with an older snapshot must fail. */
inline move_mark(c) {
#ifdef UNWRITTEN
  if :: mark != my -> MOVE(c) :: else fi;
#else
  MOVE(c);
#endif
  mark = my; lock = NIL
}

/* ---- one guarded section ---- */

inline write(c) {
  val = snap | (1 << c); acked = acked | (1 << c);
  if :: my < last -> fell = 1 :: else last = my fi;
  if :: OWNS(c) :: else -> foreign = 1 fi
}

#if defined(UNFENCED)

inline section(c) {
  snap = val;
  atomic { write(c) }
}

#elif defined(STRICT)

/* verify: the lease row FOR SHARE, and the checks, in the transaction of the write */
inline verify(c) {
  if
  :: OWNS(c) && !lapsed -> shares++
  :: else -> go = 0; SEEN(stale); if :: OWNS(c) && !lapsed -> barred = 1 :: else fi
  fi
}

inline section(c) {
  if
  :: snap = val; atomic { verify(c) }                /* read before, and unchecked, */
  :: atomic { verify(c) }; if :: go -> snap = val :: else fi     /* or after */
  fi;
  if
  :: go ->
#ifdef OWNTX
     shares--;                                       /* verified, committed; the write follows */
     if :: atomic { write(c) } :: go = 0 fi
#else
     if
     :: atomic { write(c); shares-- }
     :: atomic { go = 0; shares-- }                  /* rolled back */
     fi
#endif
  :: else
  fi
}

#else

inline section(c) {
#if defined(WRITESONLY)
  snap = val;
#elif defined(BESIDE) || defined(RR)
  atomic { snap = val; SNAPSHOT(c) };                /* one snapshot for Enter and the read: older than the lock */
  atomic { at_mark(c) };
#else
  atomic { at_mark(c) };                             /* Enter, a statement of its own, */
  if :: go -> snap = val :: else fi;                 /* then the read */
#endif
  if
#ifndef WRITESONLY
  :: lock == c                                       /* goes on in the same transaction, */
  :: atomic { lock == c -> move_mark(c) };           /* or commits, and writes in a later one */
#else
  :: true ->
#endif
     atomic { SNAPSHOT(c) };
     atomic { at_mark(c); if :: go :: else -> SEEN(stale) fi }
  :: lock != c && !go
  fi;
  if
  :: atomic { lock == c -> write(c); move_mark(c) }
  :: atomic { lock == c -> lock = NIL; go = 0 }      /* rolled back */
  :: lock != c
  fi
}

#endif

proctype Client(byte me) {
  byte my, snap, tries;
  bit go;
  do
  :: tries < TRIES ->
     atomic {                                        /* a grant: holder free or expired; the lease row is updated */
       (holder == NIL || lapsed) && shares == 0 ->
       tok++; my = tok; holder = me; lapsed = 0; tries++; go = 1
     };
     section(me);
     atomic {
       if
       :: OWNS(me) && shares == 0 -> holder = NIL    /* released, */
       :: true                                       /* or left to expire */
       fi;
       if :: go -> tries = TRIES :: else fi;
       my = 0; snap = 0; go = 0
     }
  :: tries == TRIES -> break
  od
}

active proctype World() {
end:
  do
  :: atomic { holder != NIL && !lapsed -> lapsed = 1 }
#ifdef MARKLOST
  :: atomic { lock == NIL && mark > 0 -> mark = 0 }  /* a restart, or the row deleted and made again */
#endif
  od
}

init {
  byte n;
  atomic { do :: n < N -> run Client(n); n++ :: else -> break od; n = 0 }
}

/* ---- properties ---- */

/* F3: no committed update is ever missing from the content */
ltl nolost { [] ((acked & ~val) == 0) }
/* F2: accepted writes have tokens that never fall */
ltl mono { [] !fell }
/* a write is committed only while its writer is the recognised owner (the strict check alone promises it) */
ltl onlyowner { [] !foreign }
/* the recognised, unexpired owner is never refused */
ltl rightful { [] !barred }

ltl reach_all { [] (acked != (1 << N) - 1) }
ltl reach_waits { [] !(lapsed && shares > 0) }
#ifdef REACH
ltl reach_stale { [] !stale }
#endif
