proc import datafile="covariance.csv" out=covariances dbms=csv replace;
    guessingrows=max;
run;
data s(type=cov);
    length _type_ $ 8 _name_ $ 32;
    set covariances(rename=(variable=_name_));
    _type_ = "COV";
run;
proc calis data=s nobs=3000;
    path readmitted_yes <- age stage_ii stage_iii;
run;

proc import datafile="rows.csv" out=rows dbms=csv replace;
    guessingrows=max;
run;
