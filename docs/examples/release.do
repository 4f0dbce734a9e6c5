import delimited using "covariance.csv", varnames(1) case(preserve) clear
mkmat age stage_ii stage_iii readmitted_yes if inlist(variable, "age", "stage_ii", "stage_iii", "readmitted_yes"), matrix(S)
clear
ssd init age stage_ii stage_iii readmitted_yes
ssd set observations 3000
ssd set covariances (stata) S
sem (readmitted_yes <- age stage_ii stage_iii)

import delimited using "rows.csv", varnames(1) stringcols(_all) encoding("utf-8") clear
foreach v of varlist _all {
    encode `v', generate(code_`v')
}
