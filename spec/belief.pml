/* Lease rule 1 among equals, and what a client may believe between two answers (the safe deadline).
 *
 * S sessions and one name. Each session renews itself and takes the name when it finds it free or its
 * holder expired; a client whose session has ended opens another. Transactions and time are those of
 * lease.pml: one step is one statement, row locks are kept until the commit, rem is what is left until
 * the expiry and 0 is expired. A client's own clock runs beside the store's. README.md says what each
 * variant (macro) is; the properties, at the end, are the same text for all of them.
 */
#ifndef S
#define S 2
#endif
#ifndef TTL
#define TTL 2
#endif
#ifndef MARGIN
#define MARGIN 0
#endif
#define NIL 255

/* ---- the store ---- */
byte rem[S] = TTL;               /* session rows */
bit ended[S];
byte cur = NIL;                  /* the lease row: the session of its latest acquisition */
bit held[S];                     /* the session has an acquisition that was granted and not released */
bit leaselock, sessionlock[S];   /* row locks: the lease row; a session row FOR NO KEY UPDATE */
byte pend[S];                    /* an uncommitted renewal: what will be left of it at the commit */

#define DEAD(s) (ended[s] || rem[s] == 0)

/* ---- the clients ---- */
#ifdef BLIND                     /* clients without a clock: fewer states, the same store */
#define SENT(s) skip
#define TOLD(s) skip
#define LOST(s) skip
#define OPENED(s) skip
#else
byte left[S] = TTL - MARGIN;     /* what the client believes to have left */
byte age[S];                     /* time since its present renewal was sent */
#define SENT(s) age[s] = 0
#ifdef FROMREPLY
#define TOLD(s) left[s] = TTL - MARGIN
#else
#define TOLD(s) if :: TTL - MARGIN > age[s] + left[s] -> left[s] = TTL - MARGIN - age[s] :: else fi
#endif
#define LOST(s) left[s] = 0
#define OPENED(s) left[s] = TTL - MARGIN
#endif

#ifdef REACH
bit takeover, latereply;
#define SEEN(x) x = 1
#else
#define SEEN(x) skip
#endif

/* ---- a session: renewals, and the next session after its end ---- */

proctype Renew(byte s) {
  bit ok;
end:
  do
  :: atomic { !ended[s] -> SENT(s) };
     atomic { !sessionlock[s] -> sessionlock[s] = 1 };
     atomic {                              /* the clock, in a later statement; the row is written */
       ok = !DEAD(s);
       if :: ok -> pend[s] = TTL :: else fi
     };
     atomic {                              /* commit */
       if :: ok -> rem[s] = pend[s]; pend[s] = 0 :: else fi;
       sessionlock[s] = 0
     };
     atomic {                              /* the reply arrives, or is lost */
       if
       :: ok -> if :: DEAD(s) -> SEEN(latereply) :: else fi; TOLD(s)
       :: !ok -> LOST(s)
       :: true
       fi;
       ok = 0
     }
  :: atomic {
       ended[s] && !leaselock -> ended[s] = 0; rem[s] = TTL; held[s] = 0; OPENED(s);
       if :: cur == s -> cur = NIL :: else fi
     }
  od
}

/* ---- an acquire, and the release of what it got ---- */

proctype Own(byte s) {
  byte t = NIL;
  bit go;
end:
  do
  :: atomic {                              /* the lease row; a look at who has it */
       !held[s] && !ended[s] && !leaselock -> leaselock = 1; go = 1;
       if :: cur != NIL && !ended[cur] -> t = cur :: else fi
     };
     if
     :: t != NIL ->
#ifndef TAKEEARLY
        atomic { !sessionlock[t] -> sessionlock[t] = 1 };
#endif
        atomic { go = DEAD(t) }            /* the holder's clock, in a later statement */
     :: else
     fi;
     atomic {
       if
       :: go && !DEAD(s) ->                /* own session, after the last wait; then verdict and grant */
          if :: t != NIL -> ended[t] = 1; SEEN(takeover) :: else fi;
          cur = s; held[s] = 1
       :: true                             /* refused, or the connection broke: rolled back */
       fi;
#ifndef TAKEEARLY
       if :: t != NIL -> sessionlock[t] = 0 :: else fi;
#endif
       leaselock = 0; t = NIL; go = 0
     }
  :: atomic {                              /* release */
       held[s] && !leaselock -> held[s] = 0;
       if :: cur == s -> cur = NIL :: else fi
     }
  od
}

/* ---- time ---- */

inline less(x) { if :: x > 0 -> x-- :: else fi }
inline more(x) { if :: x < TTL -> x++ :: else fi }

#ifdef SLOW                      /* the client's clock may miss a tick, once in a TTL */
byte since[S];
#define ONTIME(s) more(since[s])
#define MISSED(s) since[s] == TTL -> since[s] = 0
#endif
#ifdef SLOWER                    /* it may miss any tick */
#define ONTIME(s) skip
#define MISSED(s) skip
#endif

inline tick(s) {
  less(rem[s]); less(pend[s]);
#ifndef BLIND
#ifdef MISSED
  if :: less(left[s]); more(age[s]); ONTIME(s) :: MISSED(s) fi
#else
  less(left[s]); more(age[s])
#endif
#endif
}

#define ALL(act) s = 0; do :: s < S -> act; s++ :: else -> break od; s = 0

active proctype Clock() {
  byte s;
end:
  do
  :: atomic { ALL(tick(s)) }
#ifdef CLOCKSTEPS
  :: atomic { ALL(more(rem[s])) }                 /* a step back makes the expired look live again */
  :: atomic { ALL(rem[s] = 0; pend[s] = 0) }      /* a step forward ends what was live */
#endif
  od
}

init {
  byte n;
  atomic { do :: n < S -> run Renew(n); run Own(n); n++ :: else -> break od; n = 0 }
}

/* ---- properties ---- */

#define UNEXPIRED(s) (held[s] && !DEAD(s))
#if S == 2
#define HELD (UNEXPIRED(0) + UNEXPIRED(1))
#else
#define HELD (UNEXPIRED(0) + UNEXPIRED(1) + UNEXPIRED(2))
#endif

/* at most one unexpired, unreleased acquisition of the name in the store */
ltl onelease { [] (HELD <= 1) }

#ifndef BLIND
/* who believes to hold does hold, by the store's clock */
#define BELIEVES(s) (held[s] && left[s] > 0)
ltl belief { [] ((BELIEVES(0) -> !DEAD(0)) && (BELIEVES(1) -> !DEAD(1))) }
#endif

#ifdef REACH
ltl reach_takeover { [] !takeover }
ltl reach_latereply { [] !latereply }
#endif
