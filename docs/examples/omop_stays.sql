-- A view of an OMOP Common Data Model (5.4) for SQLite: the first stay of every person who was an inpatient, a row each.
-- PostgreSQL: write v.visit_end_date - v.visit_start_date in place of the two julianday().
-- A view is its owner's promise (docs/threat-model.md): everything here is of one person, so tables are joined by person, too.
-- Who is in it follows from who was an inpatient and from nothing that a release is to protect (docs/threat-model.md).
CREATE VIEW commingle_stays AS
WITH stay AS (
    SELECT v.person_id, v.visit_occurrence_id, v.visit_concept_id, v.visit_start_date,
        julianday(v.visit_end_date) - julianday(v.visit_start_date) AS length_of_stay,
        ROW_NUMBER() OVER (PARTITION BY v.person_id ORDER BY v.visit_start_date, v.visit_occurrence_id) AS place
    FROM visit_occurrence v
    WHERE v.visit_concept_id IN (9201, 262) -- inpatient visit; emergency room and inpatient visit
),
measured AS ( -- the first value of a stay, in the unit that the schema says
    SELECT m.person_id, m.visit_occurrence_id, m.measurement_concept_id, m.value_as_number,
        ROW_NUMBER() OVER (
            PARTITION BY m.person_id, m.visit_occurrence_id, m.measurement_concept_id
            ORDER BY m.measurement_date, m.measurement_id
        ) AS place
    FROM measurement m
    WHERE (m.measurement_concept_id, m.unit_concept_id) IN ((3004501, 8840), (3016723, 8840), (3004249, 8876))
        AND m.value_as_number IS NOT NULL
)
SELECT p.person_source_value AS subject_id, -- what the members of a consortium have agreed on
    CAST(substr(CAST(s.visit_start_date AS VARCHAR(10)), 1, 4) AS INTEGER) - p.year_of_birth AS age,
    CASE p.gender_concept_id WHEN 8532 THEN 'female' WHEN 8507 THEN 'male' END AS sex,
    CASE s.visit_concept_id WHEN 262 THEN 'yes' ELSE 'no' END AS emergency,
    glucose.value_as_number AS glucose,       -- mg/dl, in serum or plasma
    creatinine.value_as_number AS creatinine, -- mg/dl, in serum or plasma
    systolic.value_as_number AS systolic,     -- mmHg
    s.length_of_stay
FROM person p
JOIN stay s ON s.person_id = p.person_id AND s.place = 1
LEFT JOIN measured glucose ON glucose.person_id = s.person_id AND glucose.visit_occurrence_id = s.visit_occurrence_id
    AND glucose.measurement_concept_id = 3004501 AND glucose.place = 1
LEFT JOIN measured creatinine ON creatinine.person_id = s.person_id AND creatinine.visit_occurrence_id = s.visit_occurrence_id
    AND creatinine.measurement_concept_id = 3016723 AND creatinine.place = 1
LEFT JOIN measured systolic ON systolic.person_id = s.person_id AND systolic.visit_occurrence_id = s.visit_occurrence_id
    AND systolic.measurement_concept_id = 3004249 AND systolic.place = 1;
