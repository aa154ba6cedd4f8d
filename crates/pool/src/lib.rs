//! Pool-wide state: configuration, space maps, DDT, BRT, history.
