/* One operation with one recorded outcome: what may be decided from what was learned.
 *
 * Up to N attempts to have one effect at a provider, under one idempotency key. A worker may be stopped between any
 * two steps, above all between its record and its send, and goes on later without asking. A request is lost or
 * lands at any time; the provider commits, or refuses, for a reason that has nothing to do with the key. An answer
 * is lost, or arrives late, twice, after a decision. A reconciler asks the provider and may be stopped between the
 * answer and its record. A caller cancels, an operator gives a verdict, which may be wrong. One step is one
 * transaction of the store, or one request as the provider handles it. No clock of a worker appears here: time is
 * the not-after, the end of the window, and the provider's forgetting, each of which comes when it likes. README.md
 * says what each variant (macro) is; the properties, at the end, are the same text for all of them.
 */
#ifndef N
#define N 2                      /* attempts */
#endif
#ifndef R
#define R 1                      /* reconcilers */
#endif

/* the operation's state; the last three are decisions */
#define PENDING 0
#define ATTEMPTING 1
#define UNCERTAIN 2
#define SUCCEEDED 3
#define FAILED 4
#define CANCELLED 5

/* what is known of an attempt; up to REFUSED it is harmless */
#define NONE 0
#define NOTSENT 1
#define REFUSED 2
#define OPEN 3
#define NOANSWER 4
#define EFFECTIVE 5

/* what an inquiry found; nothing is recorded of one that did not observe the effect */
#define FOUND 1
#define CLOSED 2                 /* not observed, and it cannot happen any more: the key is closed, or the not-after has passed */
#define ABSENT 3                 /* not observed */

/* ---- the store ---- */
byte st;                         /* the operation's row */
byte cur;                        /* attempts recorded; the current one is cur - 1 */
byte known[N];
bit wish;                        /* cancelling was wished while an attempt may have had the effect */
bit conflict;                    /* an answer against the decision was recorded */
bit refunded;                    /* the compensation, an operation of its own, was let go */
byte changes;                    /* business changes that workers committed together with their completion */

/* ---- the provider ---- */
byte effects;                    /* how often it happened: 0, 1, 2 for more */
byte ans[N];                     /* what it answered to an attempt: NONE, REFUSED, EFFECTIVE */
bit closed;                      /* the key is refused for ever */
bit past;                        /* the instant that every attempt carried has passed, by the provider's clock */
#ifdef NOKEYS
bit window, forgot = 1;          /* a provider without keys: no window, nothing is remembered */
#else
bit window = 1;                  /* another send under the same key is allowed: first send + window - margin is not reached */
bit forgot;                      /* the provider has forgotten what it did under the key */
#endif

/* ---- history that the properties look at; no step decides by it ---- */
bit flipped;                     /* a decision was overwritten */
bit verdict;                     /* the decision is the operator's */
bit told;                        /* an answer that it happened has reached the store */

#ifdef REACH
bit stopped, settled, stale, echoed, honoured, retried;
#define SEEN(x) x = 1
#else
#define SEEN(x) skip
#endif

#define DECIDED (st >= SUCCEEDED)
#if N == 2
#define ANY(k) (known[0] == k || known[1] == k)
#define UNDER (out[0] || out[1])
#else
#define ANY(k) (known[0] == k || known[1] == k || known[2] == k)
#define UNDER (out[0] || out[1] || out[2])
#endif
#define HARMLESS (!ANY(OPEN) && !ANY(NOANSWER) && !ANY(EFFECTIVE))

#ifdef MARGIN
bit out[N];                      /* the attempt's request may still land */
#define OUT(i, x) out[i] = x
#else
#define OUT(i, x) skip
#endif

/* ---- the rules ---- */

inline become(s) {
  if :: DECIDED && st != s -> flipped = 1 :: else fi;
  st = s
}

/* The state of an undecided operation follows from what is known of its attempts. */
inline settle(last) {
  if
  :: ANY(EFFECTIVE) -> become(SUCCEEDED)
  :: !ANY(EFFECTIVE) && ANY(OPEN) -> become(ATTEMPTING)
  :: !ANY(EFFECTIVE) && !ANY(OPEN) && ANY(NOANSWER) -> become(UNCERTAIN)
  :: HARMLESS && (last) -> become(FAILED)
  :: HARMLESS && !(last) && wish -> SEEN(honoured); become(CANCELLED)
  :: HARMLESS && !(last) && !wish -> become(PENDING)
  fi
}

/* What is learned of attempt i, from whomever and whenever. last: asking again can never do it. */
inline learn(i, k, last) {
  if
  :: known[i] == OPEN || (known[i] == NOANSWER && k != NOANSWER) || k == EFFECTIVE -> known[i] = k
  :: else
  fi;
  if :: k == EFFECTIVE -> told = 1 :: else fi;
  if
  :: DECIDED ->                  /* the decision stays; what contradicts it is kept */
     if
     :: k == EFFECTIVE && st != SUCCEEDED ->
#if defined(LATEWINS)
        become(SUCCEEDED)
#elif defined(DROPSLATE)
        skip
#else
        conflict = 1
#endif
     :: else
     fi
#ifdef REFUSALFAILS
  :: !DECIDED && k == REFUSED && (last) && i + 1 == cur -> become(FAILED)
  :: !DECIDED && !(k == REFUSED && (last) && i + 1 == cur) ->
#else
  :: !DECIDED ->
#endif
     if :: k == EFFECTIVE && i + 1 != cur -> SEEN(settled) :: else fi;
     settle((last) && i + 1 == cur)
  fi
}

/* The answer as the handler reads it. */
#ifdef USEDISDONE
#define READ(i) (ans[i] == REFUSED && closed -> EFFECTIVE : ans[i])
#else
#define READ(i) ans[i]
#endif

/* CompleteTx: the worker's own change commits only if the operation moves as its attempt's. */
inline complete(i, last) {
#ifdef ALWAYS
  if
  :: READ(i) == EFFECTIVE -> known[i] = EFFECTIVE; told = 1; changes++; become(SUCCEEDED)
  :: READ(i) == REFUSED && (last) -> known[i] = REFUSED; become(FAILED)
  :: else
  fi
#else
  if
  :: i + 1 == cur && known[i] == OPEN && !DECIDED ->
     if :: READ(i) == EFFECTIVE -> changes++ :: else fi;
     learn(i, READ(i), last)
  :: else -> SEEN(stale)         /* rolled back; what was learned is evidence, as below */
  fi
#endif
}

#ifdef LATERETRY
#define MAYBEGIN !DECIDED
#else
#define MAYBEGIN (!DECIDED && (HARMLESS || window))
#endif

/* ---- an attempt: its worker, then its request ---- */

#if defined(NOTAFTER) && defined(UNCARRIED)
#define BARRED (closed || (past && i == 0))      /* only the first attempt carries the instant */
#elif defined(NOTAFTER) && !defined(UNENFORCED)
#define BARRED (closed || past)
#else
#define BARRED closed
#endif

inline land(i) {
  if
  :: !BARRED && (effects == 0 || forgot) -> ans[i] = EFFECTIVE; if :: effects < 2 -> effects++ :: else fi
  :: !BARRED && effects > 0 && !forgot -> ans[i] = EFFECTIVE; SEEN(echoed)
  :: ans[i] = REFUSED;           /* by the key, the instant, or for another reason, also after the effect */
     if :: BARRED && st == FAILED -> SEEN(stopped) :: else fi
  fi
}

proctype Attempt(byte i) {
  atomic {                       /* recorded before anything leaves; whatever was open is given up */
    cur == i && MAYBEGIN ->
    if :: st == PENDING && cur > 0 -> SEEN(retried) :: else fi;
    if :: i > 0 && known[i - 1] == OPEN -> known[i - 1] = NOANSWER :: else fi;
    cur++; known[i] = OPEN; OUT(i, 1); become(ATTEMPTING)
  };
  if                             /* stopped here for as long as it takes */
  :: true                        /* sent */
  :: atomic { learn(i, NOTSENT, false); OUT(i, 0); goto gone }   /* it says that it will not send */
  :: atomic { OUT(i, 0); goto gone }                             /* killed */
  fi;
  if
  :: atomic { land(i); OUT(i, 0) }
  :: atomic { OUT(i, 0); goto gone }                             /* lost */
  fi;
#ifdef DOUBLED
  if :: true :: atomic { land(i) } fi;                           /* somebody in between has sent it again */
#endif
  if
  :: atomic { true -> complete(i, false) }
  :: atomic { true -> complete(i, true) }
  :: true                        /* its worker has gone, or the answer is lost */
  fi;
gone:
  skip
}

/* Late answers, webhooks, answers that come twice. */
active proctype Evidence() {
end:
  do
  :: atomic { ans[0] != NONE -> learn(0, READ(0), false) }
  :: atomic { ans[0] != NONE -> learn(0, READ(0), true) }
  :: atomic { ans[1] != NONE -> learn(1, READ(1), false) }
  :: atomic { ans[1] != NONE -> learn(1, READ(1), true) }
#if N == 3
  :: atomic { ans[2] != NONE -> learn(2, READ(2), false) }
  :: atomic { ans[2] != NONE -> learn(2, READ(2), true) }
#endif
  od
}

/* ---- who looks after operations without their workers ---- */

#ifdef CRASHISNOTSENT
#define SILENCE NOTSENT
#else
#define SILENCE NOANSWER
#endif

active proctype Dispatcher() {
end:
  do
  :: atomic { !DECIDED && cur > 0 && known[cur - 1] == OPEN -> learn(cur - 1, SILENCE, false) }   /* its claim has expired */
  :: atomic { st == PENDING && cur == N -> become(FAILED) }      /* attempts are bounded, and all were harmless */
  od
}

#ifdef BYKEY
#define LOOK (effects > 0 && !forgot)
#else
#define LOOK (effects > 0)
#endif

#ifdef REFUNDUNCERTAIN
#define MAYCOMPENSATE (st == SUCCEEDED || st == UNCERTAIN)
#else
#define MAYCOMPENSATE (st == SUCCEEDED)
#endif

inline inquire(f) {
  if
  :: LOOK -> f = FOUND
#if defined(LOOKFAILS)
  :: !LOOK -> f = CLOSED
#elif defined(NOTAFTER)
  :: !LOOK && past -> f = CLOSED
  :: !LOOK && !past -> f = ABSENT
#elif defined(LOOKUP) || defined(CLOSELATER)
  :: !LOOK -> f = ABSENT
#else
  :: !LOOK -> closed = 1; f = CLOSED
  :: !LOOK && !closed -> closed = 1              /* and the answer is lost */
#endif
  fi
}

#ifdef EDGE
#define EDGE_REFUND refunded = wish
#else
#define EDGE_REFUND skip
#endif

#ifdef ASOF
#define SINCE (asof == cur)                      /* no attempt has begun since the inquiry */
#else
#define SINCE true
#endif

proctype Reconciler() {
  byte f;
#ifdef ASOF
  byte asof;
#endif
end:
  do
  :: atomic {
       st == UNCERTAIN && f == 0 -> inquire(f);
#ifdef ASOF
       asof = cur
#endif
     }
  :: atomic {
       f == FOUND || f == CLOSED ->
       if :: f == FOUND -> told = 1 :: else fi;
       if
       :: !DECIDED && f == FOUND -> become(SUCCEEDED); EDGE_REFUND
       :: !DECIDED && f == CLOSED && SINCE -> become(FAILED)
       :: !DECIDED && f == CLOSED && !SINCE -> skip
       :: DECIDED -> if :: (f == FOUND) != (st == SUCCEEDED) -> conflict = 1 :: else fi
       fi;
       f = 0
     }
  :: atomic {
       f == ABSENT ->
#if defined(CLOSELATER)
       closed = 1; f = CLOSED
#elif defined(LOOKEARLY)
       f = (past -> CLOSED : 0)
#else
       f = 0                                     /* not observed decides nothing */
#endif
     }
#ifndef EDGE
  :: atomic { wish && MAYCOMPENSATE && !refunded -> refunded = 1 }
#endif
  od
}

/* ---- people ---- */

active proctype Caller() {
  do
  :: atomic {
       !DECIDED ->
       if
       :: HARMLESS -> become(CANCELLED)
#ifdef CANCELOPEN
       :: !HARMLESS -> become(CANCELLED)
#else
       :: !HARMLESS -> wish = 1
#endif
       fi
     }
  :: atomic { st == UNCERTAIN -> verdict = 1; if :: true -> become(SUCCEEDED) :: true -> become(FAILED) fi }
  :: break
  od
}

/* ---- time ---- */

#ifdef NOTAFTER
#define INSTANT past                             /* the instant lies within the window */
#else
#define INSTANT true
#endif
#ifdef MARGIN
#define LANDED (!UNDER)                          /* what began within the window lands within the margin, or never */
#else
#define LANDED true
#endif
#ifdef LAPSES
#define REOPENED closed = 0
#else
#define REOPENED skip
#endif

active proctype Clock() {
end:
  do
  :: false
#ifdef NOTAFTER
  :: atomic { !past -> past = 1 }
#endif
#ifdef WINDOW
  :: atomic { window -> window = 0 }
  :: atomic { !window && !forgot && INSTANT && LANDED -> forgot = 1; REOPENED }
#endif
  od
}

init {
  byte n;
  atomic {
    do :: n < N -> run Attempt(n); n++ :: else -> break od;
    n = 0; do :: n < R -> run Reconciler(); n++ :: else -> break od; n = 0
  }
}

/* ---- properties ---- */

#define OURS (DECIDED && !verdict)               /* decided by the rules, not by the operator */

/* what was decided as failed or cancelled has not happened, and does not happen later */
ltl failtrue { [] (OURS && st != SUCCEEDED -> effects == 0) }
/* what was decided as succeeded has happened */
ltl succtrue { [] (OURS && st == SUCCEEDED -> effects > 0) }
/* it happens once at most */
ltl atmostonce { [] (effects <= 1) }
/* a decision never changes */
ltl steady { [] !flipped }
/* an answer that it happened decides, or is kept as a conflict */
ltl kept { [] (told && DECIDED -> st == SUCCEEDED || conflict) }
/* nothing is refunded that did not happen */
ltl refundtrue { [] (refunded && !verdict -> effects > 0) }
/* workers commit one business change at most, and only with the operation's success */
ltl onechange { [] (changes <= 1 && (changes > 0 -> st == SUCCEEDED)) }

ltl all { [] ((OURS && st != SUCCEEDED -> effects == 0) && (OURS && st == SUCCEEDED -> effects > 0) && effects <= 1 && !flipped
  && (told && DECIDED -> st == SUCCEEDED || conflict) && (refunded && !verdict -> effects > 0)
  && changes <= 1 && (changes > 0 -> st == SUCCEEDED)) }

/* with weak fairness: every operation is decided, */
ltl ends_decided { <> DECIDED }
/* and a wish to cancel what has succeeded is honoured */
ltl ends_refunded { [] (wish && st == SUCCEEDED -> <> refunded) }

#ifdef REACH
ltl reach_stopped { [] !stopped }
ltl reach_settled { [] !settled }
ltl reach_stale { [] !stale }
ltl reach_echoed { [] !echoed }
ltl reach_honoured { [] !honoured }
ltl reach_retried { [] !retried }
#endif
ltl reach_conflict { [] !conflict }
ltl reach_refunded { [] !refunded }
