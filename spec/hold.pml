/* Holds on one item of which there is one: place, extend, confirm and release, as transactions that wait for the item's row.
 *
 * Two buyers with one hold each, and two calls at a time, any of them for either hold, again and again: so a reply may be
 * lost and its request repeated, a copy of it may come late, and the same hold is confirmed, released and extended
 * at once. A call's first statement takes its snapshot and waits for the item's row; its next one reads the clock and
 * the holds; then the caller's own transaction goes on for as long as it likes, and commits or rolls back. There is no
 * sweeper: what has expired is found by whoever comes next. Time is one event a hold, its deadline, and another, the
 * end of a grace; each comes when it likes. README.md says what each variant (macro) is; the properties, at the end, are
 * the same text for all of them.
 */
#define C 2                      /* calls at a time */

/* a hold; what comes after HELD is an end */
#define NONE 0
#define HELD 1                   /* as written: its time may have passed */
#define CONFIRMED 2
#define RELEASED 3
#define EXPIRED 4                /* the verdict, written by who acted on it */
#define LATE 5

#define PLACE 1
#define EXTEND 2
#define CONFIRM 3
#define RELEASE 4

/* ---- the store ---- */
byte st[2];                      /* the holds' rows */
byte sold, held;                 /* the item's row: what its holds have, expired ones until their verdict */
byte lock;                       /* who has locked it: call + 1 */

/* ---- the clock ---- */
bit due[2];                      /* the deadline has passed */
bit over[2];                     /* and so has the grace */

/* ---- history that the properties look at; no step decides by it ---- */
bit twoends;                     /* a hold that was over is something else */
bit belated;                     /* sold when its time, and grace, had passed by the clock */
bit wronged;                     /* refused though nobody had it */
bit paid[2];                     /* a payment was answered */

#ifdef REACH
bit slow, waited, again, graced;
#define SEEN(x) x = 1
#else
#define SEEN(x) skip
#endif

#ifdef RR
bit stale[C];                    /* the item's row was changed since the call's snapshot */
#define TOUCHED stale[0] = 1; stale[1] = 1
#else
#define TOUCHED skip
#endif

#ifdef GRACE
#define TOOLATE(i) over[i]
#else
#define TOOLATE(i) due[i]
#endif

inline become(h, s) {
  if :: st[h] > HELD && s != st[h] && !(st[h] == EXPIRED && (s == LATE || s == CONFIRMED)) -> twoends = 1 :: else fi;
  if :: s == CONFIRMED && st[h] != CONFIRMED && sold < 3 -> sold++ :: else fi;
  if :: st[h] == HELD && s != HELD && held > 0 -> held-- :: else fi;
  if :: s == HELD && st[h] != HELD && held < 3 -> held++ :: else fi;
  st[h] = s
}

/* whether the other hold keeps this one out, by what the call has read */
#ifdef SWEEPER
#define LIVE(j) (n[j] == HELD)   /* until somebody has swept it */
#else
#define LIVE(j) (n[j] == HELD && !due[j])
#endif
#define OUT(j) (n[j] == CONFIRMED || LIVE(j))
#define REALLYOUT(j) (st[j] == CONFIRMED || (st[j] == HELD && !due[j]))

#ifdef CLOCKEARLY
#define PASSED early
#else
#define PASSED due[i]
#endif

/* What becomes of hold i, if anything: to. The answer is given with the commit. */
inline judge() {
  to = NONE; verdict = 0;
  if
  :: op == PLACE ->
     if
#ifdef REUSED
     :: n[i] != HELD && n[i] != CONFIRMED && !OUT(1 - i) -> to = HELD
     :: n[i] != HELD && n[i] != CONFIRMED && OUT(1 - i) -> wronged = wronged || !REALLYOUT(1 - i)
#else
     :: n[i] == NONE && !OUT(1 - i) -> to = HELD
     :: n[i] == NONE && OUT(1 - i) -> wronged = wronged || !REALLYOUT(1 - i)
#endif
     :: else                     /* asked again: the hold as it stands */
     fi
  :: op == EXTEND ->
     if
     :: n[i] == HELD && !PASSED -> to = HELD
#ifdef REVIVES
     :: n[i] == EXPIRED || (n[i] == HELD && PASSED) -> to = HELD
#endif
     :: else
     fi
  :: op == RELEASE ->
     if
     :: n[i] == HELD && !PASSED -> to = RELEASED
     :: n[i] == HELD && PASSED -> to = EXPIRED
#ifdef RELEASESSOLD
     :: n[i] == CONFIRMED -> to = RELEASED
#endif
     :: else
     fi
  :: op == CONFIRM ->
     if
     :: n[i] == HELD && !PASSED -> to = CONFIRMED
     :: (n[i] == HELD && PASSED) || n[i] == EXPIRED ->
        if
#if defined(LATESELLS)
        :: true -> to = CONFIRMED
#elif defined(GRACETAKES)
        :: !over[i] -> to = CONFIRMED; SEEN(graced)
        :: else -> to = LATE
#elif defined(GRACE)
        :: !over[i] && !OUT(1 - i) -> to = CONFIRMED; SEEN(graced)
        :: else -> to = LATE
#elif defined(DROPSLATE)
        :: true -> to = EXPIRED  /* refused, and the payment with it */
#else
        :: true -> to = LATE
#endif
        fi
     :: else                     /* asked again, or released */
     fi;
     if :: to == CONFIRMED && TOOLATE(i) -> belated = 1 :: else fi
  fi;
#ifndef NOVERDICT
  if :: (to == HELD || to == CONFIRMED) && n[1 - i] == HELD && due[1 - i] -> verdict = 1 :: else fi
#endif
}

inline read() { n[0] = st[0]; n[1] = st[1] }

inline apply() {
#ifndef REUSED
  if :: op == PLACE && to != NONE && st[i] != NONE -> to = NONE; verdict = 0; op = 0 :: else fi;   /* ids are unique */
#endif
#ifdef RR
  if                             /* a row that was changed since the snapshot is not overwritten */
  :: (to != NONE && st[i] != n[i]) || (verdict && st[1 - i] != n[1 - i]) -> SEEN(again); to = NONE; verdict = 0; op = 0
  :: else
  fi;
#endif
  if
  :: to != NONE ->
     if :: to == CONFIRMED && due[i] && op == CONFIRM && lock -> SEEN(slow) :: else fi;
     become(i, to);
     if :: to == HELD -> due[i] = 0; over[i] = 0 :: else fi;
#ifndef NOTOUCH
     TOUCHED
#endif
  :: else
  fi;
#ifdef TWICE
  if :: op == CONFIRM && to == NONE && st[i] == CONFIRMED && sold < 3 -> sold++ :: else fi;
#endif
#ifdef FREESAGAIN
  if :: op == RELEASE && to == NONE && st[i] == EXPIRED && held > 0 -> held-- :: else fi;
#endif
  if :: verdict && st[1 - i] == HELD -> become(1 - i, EXPIRED) :: else fi;
  if :: op == CONFIRM && n[i] != NONE && n[i] != RELEASED -> paid[i] = 1 :: else fi
}

proctype Call(byte me) {
  byte n[2];                     /* the holds as read */
  byte i, op, to;
  bit verdict, early;
end:
  do
  :: atomic {                    /* the first statement begins */
       if :: i = 0 :: i = 1 fi;
       if :: op = PLACE :: st[i] != NONE -> op = EXTEND :: st[i] != NONE -> op = CONFIRM :: st[i] != NONE -> op = RELEASE fi;
#if defined(RR) || defined(ONESTATEMENT) || defined(READSFIRST) || defined(CONFIRMREADS)
       read();                   /* what it has read by now decides */
#endif
#ifdef CLOCKEARLY
       early = due[i];
#endif
#ifdef RR
       stale[me] = 0;
#endif
#if defined(READSFIRST)
       judge();
#elif defined(CONFIRMREADS)
       if :: op == CONFIRM -> judge() :: else fi;
#endif
       if :: lock -> SEEN(waited) :: else fi
     };
     atomic { lock == 0 -> lock = me + 1 };
     atomic {                    /* the next one */
#if defined(RR)
       if :: stale[me] -> SEEN(again); op = 0 :: else -> judge() fi
#elif defined(ONESTATEMENT)
       judge()                   /* the same one: its snapshot is from before the wait */
#elif defined(READSFIRST)
       skip
#elif defined(CONFIRMREADS)
       if :: op != CONFIRM -> read(); judge() :: else fi
#else
       read(); judge()
#endif
     };
     if                          /* the sale goes on */
     :: atomic { op != 0 -> apply(); lock = 0; op = 0; to = 0; verdict = 0; early = 0; i = 0; n[0] = 0; n[1] = 0 }
     :: atomic { lock = 0; op = 0; to = 0; verdict = 0; early = 0; i = 0; n[0] = 0; n[1] = 0 }   /* rolled back */
     fi
  od
}

active proctype Clock() {
end:
  do
  :: atomic { st[0] != NONE && !due[0] -> due[0] = 1 }
  :: atomic { st[1] != NONE && !due[1] -> due[1] = 1 }
#ifdef GRACE
  :: atomic { due[0] && !over[0] -> over[0] = 1 }
  :: atomic { due[1] && !over[1] -> over[1] = 1 }
#endif
  od
}

init {
  byte c;
  atomic { do :: c < C -> run Call(c); c++ :: else -> break od; c = 0 }
}

/* ---- properties ---- */

#define LIVING(i) (st[i] == HELD && !due[i])

/* it is sold once */
ltl onesale { [] !(st[0] == CONFIRMED && st[1] == CONFIRMED) }
/* what is sold and held by live holds is never more than there is */
ltl conserve { [] ((st[0] == CONFIRMED || LIVING(0)) + (st[1] == CONFIRMED || LIVING(1)) <= 1) }
/* a hold ends once; only what has expired may still be late, or sold with grace */
ltl oneend { [] !twoends }
/* a payment that was answered is recorded, as a sale or as late */
ltl kept { [] ((paid[0] -> st[0] == CONFIRMED || st[0] == LATE) && (paid[1] -> st[1] == CONFIRMED || st[1] == LATE)) }
/* the item's row counts what its holds have */
ltl counted { [] (sold == (st[0] == CONFIRMED) + (st[1] == CONFIRMED) && held == (st[0] == HELD) + (st[1] == HELD)) }
/* nothing is sold after its time by the clock */
ltl intime { [] !belated }
/* what has expired keeps nobody out, though nobody sweeps */
ltl rightful { [] !wronged }

ltl all { [] (!(st[0] == CONFIRMED && st[1] == CONFIRMED) && (st[0] == CONFIRMED || LIVING(0)) + (st[1] == CONFIRMED || LIVING(1)) <= 1 && !twoends
  && (paid[0] -> st[0] == CONFIRMED || st[0] == LATE) && (paid[1] -> st[1] == CONFIRMED || st[1] == LATE)
  && sold == (st[0] == CONFIRMED) + (st[1] == CONFIRMED) && held == (st[0] == HELD) + (st[1] == HELD) && !belated && !wronged) }

#ifdef REACH
ltl reach_slow { [] !slow }
ltl reach_waited { [] !waited }
ltl reach_again { [] !again }
ltl reach_graced { [] !graced }
#endif
ltl reach_late { [] !(st[0] == LATE && st[1] == CONFIRMED) }
